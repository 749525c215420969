/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_FAMILY_H
#define GSN_FAMILY_H
/*
 * Model families as data: which keys of config.json a family uses, and which tensor name is which
 * part of which MoE parameter. A new family is a new table in families.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/moe.h>

#define GSN_RULES_MAX  32
#define GSN_PLAIN_MAX  16 /* and a NULL */
#define GSN_NEEDED_MAX 12
#define GSN_DENSE_MAX  3

/* How tensor parallelism cuts the tensor that a rule names. */
enum gsn_shard_axis { GSN_SHARD_NONE, GSN_SHARD_ROWS, GSN_SHARD_COLUMNS };

/* How a tensor holds matrices [rows, columns]; of a vector there are rows only. */
enum gsn_layout {
	GSN_LAYOUT_MATRIX,     /* [rows, columns]: one part of one expert, or of the layer */
	GSN_LAYOUT_STACKED,    /* [experts, rows, columns], row by row of each part in turn */
	GSN_LAYOUT_TRANSPOSED, /* [experts, columns, rows], the rows as above */
};

/*
 * `pattern` is a tensor name without its optional "model." prefix; %l stands for the layer's
 * number and %e for the expert's. Fused parameters are made of `parts` matrices an expert, of
 * which this is number `part`: gate is part 0 of w13, up is part 1. A tensor that holds several
 * experts holds all parts and says 0. Rules of one slot and part are spellings of it; the first is
 * the one that messages name.
 */
struct gsn_tensor_rule {
	const char *pattern; /* NULL ends the table */
	gpusnap_moe_slot slot;
	enum gsn_layout layout;
	enum gsn_shard_axis axis;
	uint8_t part;
	uint8_t parts;
};

/* Keys of config.json; NULL where the family has none. */
struct gsn_family_keys {
	const char *experts[2]; /* two spellings of the number of routed experts */
	const char *top_k;
	const char *renormalise;  /* boolean; NULL: always */
	const char *sparse_step;  /* layer l is sparse if (l + 1) % step == 0 */
	const char *sparse_every; /* layer l is sparse if l % every == 0 */
	const char *dense_layers; /* array of layers that are not sparse */
	const char *first_dense;  /* this many layers at the beginning are not sparse */
	const char *first_hash;	  /* this many layers at the beginning are routed by hash */
	const char *layer_types;  /* or a word a layer: "hash_moe", "moe" */
	const char *shared;	  /* number or width of shared experts; 0 or absent: none */
	const char *routed_scale;
	const char *groups, *top_groups;
	const char *limit;   /* of the activation; absent: limit_default */
	const char *scoring; /* the score's name, which must be scoring_word where it is given */
};

struct gsn_family {
	const char *model_type; /* NULL: of no known family, kept tensor by tensor */
	gpusnap_score score;
	gpusnap_activation activation;
	float limit_default; /* 0: none */
	const char *scoring_word;
	struct gsn_family_keys keys;
	struct gsn_tensor_rule rules[GSN_RULES_MAX];
	/*
	 * Tensors that are no MoE parameters, or no more than a norm, and belong to the model all
	 * the same, as patterns; * stands for any end. Those that every model has, that its dense
	 * layers have besides, the output head unless embeddings are tied, and what may be there.
	 */
	const char *needed[GSN_NEEDED_MAX];
	const char *dense[GSN_DENSE_MAX];
	const char *head;
	const char *plain[GSN_PLAIN_MAX + 1];
};

/* What tensors of an unknown family are kept by: no rules. */
extern const struct gsn_family gsn_family_unknown;
/* By model_type; NULL when unknown. */
const struct gsn_family *gsn_family_find(const char *model_type);
/* By position; NULL past the end. */
const struct gsn_family *gsn_family_at(size_t index);

struct gsn_tensor_match {
	const struct gsn_tensor_rule *rule;
	bool prefixed; /* the name begins with "model." */
	uint32_t layer;
	uint32_t expert; /* 0 where the pattern has no %e */
};

/* False when the tensor is none of the family's MoE parameters. */
bool gsn_family_match(
	const struct gsn_family *family, const char *name, struct gsn_tensor_match *ret_match);
/* The name that a rule gives an expert of a layer; gsn_free(). NULL: no memory. */
char *gsn_rule_name(
	const struct gsn_tensor_rule *rule, bool prefixed, uint32_t layer, uint32_t expert);
/* Is there one such tensor an expert, or one a layer. */
bool gsn_rule_is_per_expert(const struct gsn_tensor_rule *rule);
/* A name, with or without prefix, against a pattern; sets layer and expert. */
bool gsn_pattern_match(const char *pattern, const char *name, struct gsn_tensor_match *match);
/* Is it of a layer for multi-token prediction: behind the model's layers, or under "mtp.". */
bool gsn_is_prediction(const char *name, uint32_t layers);

#endif
