/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the golden snapshots: make_golden FOLDER makes FOLDER/good and FOLDER/bad. The same bytes
 * on every machine. The name of a bad file says what a reader must answer: STATUS__FAULT.gsnap.
 *
 * Golden files are kept for ever: when the format grows, add files, and never change one.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gpusnap/moe.h>
#include <gpusnap/probe.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "tests/compat/golden_files.h"
#include "tests/support/gsnap_make.h"

static const char *folder;

void golden_must(bool condition, const char *what)
{
	if (!condition) {
		(void)fprintf(stderr, "make_golden: %s: %s\n", what, strerror(errno));
		exit(EXIT_FAILURE);
	}
}

static void make_folder(const char *name)
{
	char *path = gsn_printf("%s/%s", folder, name);

	golden_must(path && (mkdir(path, 0777) == 0 || errno == EEXIST), name);
	gsn_free(path);
}

void golden_write(const char *name, const uint8_t *bytes, size_t length)
{
	char *path = gsn_printf("%s/%s.gsnap", folder, name);
	FILE *stream = path ? fopen(path, "wb") : NULL;

	golden_must(stream != NULL, name);
	golden_must(fwrite(bytes, 1, length, stream) == length, name);
	golden_must(fclose(stream) == 0, name);
	gsn_free(path);
}

/* Write the plan's file as it should be. Frees the plan. */
static void good(const char *name, gpusnap_plan *plan)
{
	struct gsnap_file file = make_file(plan, NULL);

	golden_write(name, file.bytes, file.length);
	free_file(&file);
	gpusnap_plan_free(plan);
}

/* ---- plans ---- */

static gpusnap_plan *one_buffer(void)
{
	const uint64_t shape[] = {4, 8};
	gpusnap_plan *plan = make_plan();

	make_region(plan, 1, "weights", 64);
	make_buffer(plan, "w", GPUSNAP_BF16, 1, 0, 2, shape);
	return plan;
}

static gpusnap_plan *empty_buffer(void)
{
	const uint64_t shape[] = {0, 8};
	gpusnap_plan *plan = one_buffer();

	make_buffer(plan, "none", GPUSNAP_F32, 1, 64, 2, shape);
	make_buffer(plan, "nothing", GPUSNAP_F4, 1, 0, 1, shape);
	return plan;
}

gpusnap_plan *golden_leaves(void)
{
	const uint64_t longer[] = {65536 + 1000}, even[] = {16384}, shorter[] = {1};
	gpusnap_plan *plan = make_plan();

	make_region(plan, 3, "weights", 65536 + 1000 + 65536 + 24);
	make_buffer(plan, "longer", GPUSNAP_U8, 3, 0, 1, longer);
	make_buffer(plan, "even", GPUSNAP_F32, 3, 65536 + 1000, 1, even);
	make_buffer(plan, "shorter", GPUSNAP_U8, 3, 65536 + 1000 + 65536, 1, shorter);
	return plan;
}

static gpusnap_digest numbered(uint8_t number)
{
	return gpusnap_digest_of(&number, 1);
}

static gpusnap_json *model_record(const gpusnap_mask_type *mask)
{
	char family[] = "qwen3_moe", module[] = "model.layers.0.mlp", router[] = "router",
	     w13[] = "w13", w2[] = "w2", named_mask[] = "mask", norm[] = "norm";
	gpusnap_moe_layer layer = {
		.module = module,
		.hidden = 8,
		.intermediate = 4,
		.experts = 6,
		.top_k = 2,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = true,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.norm_epsilon = 0.0009765625f,
		.mask = *mask,
		.buffers = {[GPUSNAP_MOE_ROUTER] = router,
			[GPUSNAP_MOE_W13] = w13,
			[GPUSNAP_MOE_W2] = w2,
			[GPUSNAP_MOE_MASK] = named_mask,
			[GPUSNAP_MOE_NORM] = norm},
	};
	gpusnap_moe_model model = {.family = family,
		.tp_size = 1,
		.ep_rank = 1,
		.ep_size = 2,
		.layer_count = 1,
		.layers = &layer};

	return gpusnap_moe_model_encode(&model);
}

static gpusnap_json *probe_record(void)
{
	gpusnap_probe *probe = gpusnap_probe_new(1);
	gpusnap_probe_layer *layer;
	gpusnap_json *json;

	golden_must(probe != NULL, "no memory");
	layer = &probe->layers[0];
	probe->seed = 1;
	probe->tokens = 8;
	probe->steps = 4;
	layer->control[GPUSNAP_MOE_ROUTER] = numbered(1);
	layer->control[GPUSNAP_MOE_MASK] = numbered(2);
	layer->control[GPUSNAP_MOE_NORM] = numbered(3);
	layer->expert_count = 3;
	layer->experts = gsn_alloc(3, sizeof *layer->experts);
	golden_must(layer->experts != NULL, "no memory");
	for (uint8_t i = 0; i < 3; i++)
		layer->experts[i] = numbered((uint8_t)(10 + i));
	layer->output = numbered(4);
	layer->local_assignments = 33;
	layer->remote_assignments = 31;
	probe->digest = gpusnap_probe_digest(probe);
	json = gpusnap_probe_encode(probe);
	gpusnap_probe_free(probe);
	return json;
}

gpusnap_plan *golden_two_regions(void)
{
	const gpusnap_mask_type mask = {.kind = GPUSNAP_MASK_VLLM_AITER,
		.experts = 6,
		.local = 3,
		.first = 3,
		.shared = 1,
		.rank = 1,
		.world = 2};
	const uint64_t router[] = {6, 8}, w13[] = {3, 8, 8}, w2[] = {3, 8, 4}, norm[] = {8},
		       kv[] = {2, 512}, expert[] = {8, 8}, columns[] = {4, 8};
	gpusnap_plan *plan = make_plan();
	gpusnap_plan_region *kv_region;
	gpusnap_plan_view *view;

	plan->ep_rank = 1;
	plan->ep_size = 2;
	make_region(plan, 1, "weights", 2048);
	kv_region = make_region(plan, 2, "kv_cache", 4096);
	kv_region->policy = kv_region->unclaimed = GPUSNAP_POLICY_DISCARD;
	kv_region->managed = false;
	make_buffer(plan, "router", GPUSNAP_F32, 1, 64, 2, router)->role = GPUSNAP_ROLE_ROUTER;
	make_buffer(plan, "w13", GPUSNAP_BF16, 1, 256, 3, w13);
	make_buffer(plan, "w2", GPUSNAP_BF16, 1, 640, 3, w2);
	make_mask(plan, "mask", 1, 832, &mask);
	make_buffer(plan, "norm", GPUSNAP_BF16, 1, 1024, 1, norm)->role = GPUSNAP_ROLE_OTHER;
	make_buffer(plan, "kv", GPUSNAP_F8_E4M3, 2, 128, 2, kv)->role = GPUSNAP_ROLE_KV;
	plan->buffers[plan->buffer_count - 1].kept = false;
	make_view(plan, "w13.1", "w13", GPUSNAP_BF16, 128, 2, expert);
	view = make_view(plan, "w2.0.transposed", "w2", GPUSNAP_BF16, 0, 2, columns);
	view->strides[0] = 1;
	view->strides[1] = 4;
	view = make_view(plan, "norm.reversed", "norm", GPUSNAP_BF16, 14, 1, norm);
	view->strides[0] = -1;
	plan->records = gpusnap_json_pack(
		"{s:o, s:o}", "model", model_record(&mask), "probe", probe_record());
	golden_must(plan->records != NULL, "no memory");
	return plan;
}

/* ---- good files ---- */

/* Members and records that this version does not define. */
static void make_unknown_members(void)
{
	gpusnap_plan *plan = one_buffer();
	char *text, *more;
	struct gsnap_file file;

	plan->records = gpusnap_json_pack("{s:[i, n]}", "engine.notes", 1);
	text = gpusnap_plan_encode(plan);
	golden_must(text != NULL, "no memory");
	more = gsn_printf("{\"later\":{\"deep\":[true]},%s", text + 1);
	file = make_file(plan, more);
	golden_write("good/unknown_members", file.bytes, file.length);
	free_file(&file);
	gpusnap_text_free(text);
	gsn_free(more);
	gpusnap_plan_free(plan);
}

static void sign_seal(struct gsnap_file *file)
{
	uint8_t *seal = file->bytes + file->seal_at;
	gpusnap_digest own = gpusnap_digest_of(seal, GPUSNAP_SEAL_BYTES - 16);

	memcpy(seal + GPUSNAP_SEAL_BYTES - 16, own.bytes, sizeof own.bytes);
}

static void make_optional_feature(void)
{
	gpusnap_plan *plan = one_buffer();
	struct gsnap_file file = make_file(plan, NULL);

	gsn_put_le64(file.bytes + file.seal_at + 24, UINT64_C(1) << 40);
	sign_seal(&file);
	golden_write("good/optional_feature", file.bytes, file.length);
	free_file(&file);
	gpusnap_plan_free(plan);
}

static void make_good(void)
{
	make_folder("good");
	good("good/empty", make_plan());
	good("good/one_buffer", one_buffer());
	good("good/empty_buffer", empty_buffer());
	good("good/leaves", golden_leaves());
	good("good/two_regions", golden_two_regions());
	make_unknown_members();
	make_optional_feature();
	golden_good_deltas();
}

/* ---- bad files: one byte, one field ---- */

/* Flip the lowest bit of one byte; `sign` makes the seal's own digest right again. */
static void flip(const char *name, size_t (*where)(const struct gsnap_file *), bool sign)
{
	gpusnap_plan *plan = golden_two_regions();
	struct gsnap_file file = make_file(plan, NULL);

	file.bytes[where(&file)] ^= 1;
	if (sign)
		sign_seal(&file);
	golden_write(name, file.bytes, file.length);
	free_file(&file);
	gpusnap_plan_free(plan);
}

static size_t in_header_json(const struct gsnap_file *file)
{
	(void)file;
	return 100;
}

static size_t in_header_padding(const struct gsnap_file *file)
{
	return file->header_bytes - 1;
}

static size_t in_data(const struct gsnap_file *file)
{
	return file->header_bytes + 700;
}

static size_t in_leaves(const struct gsnap_file *file)
{
	return file->leaves_at + 17;
}

static size_t in_seal_digest(const struct gsnap_file *file)
{
	return file->length - 1;
}

static size_t in_seal_uuid(const struct gsnap_file *file)
{
	return file->seal_at + 32;
}

static size_t in_root(const struct gsnap_file *file)
{
	return file->seal_at + 80;
}

static size_t in_magic(const struct gsnap_file *file)
{
	return file->seal_at + 1;
}

static size_t in_reserved(const struct gsnap_file *file)
{
	return file->seal_at + 140;
}

static size_t in_seal_length(const struct gsnap_file *file)
{
	return file->seal_at + 12;
}

static size_t in_leaf_size(const struct gsnap_file *file)
{
	return file->seal_at + 136;
}

static size_t in_leaf_count(const struct gsnap_file *file)
{
	return file->seal_at + 128;
}

static size_t in_header_length(const struct gsnap_file *file)
{
	return file->seal_at + 121; /* 256 bytes off */
}

static void make_flips(void)
{
	flip("bad/corrupt__header_json", in_header_json, false);
	flip("bad/corrupt__header_padding", in_header_padding, false);
	flip("bad/corrupt__data", in_data, false);
	flip("bad/corrupt__leaves", in_leaves, false);
	flip("bad/corrupt__seal_digest", in_seal_digest, false);
	flip("bad/corrupt__seal_field", in_seal_uuid, false);
	flip("bad/corrupt__root", in_root, true);
	flip("bad/format__magic", in_magic, true);
	flip("bad/format__seal_reserved", in_reserved, true);
	flip("bad/format__seal_length", in_seal_length, true);
	flip("bad/format__seal_leaf_size", in_leaf_size, true);
	flip("bad/format__seal_leaf_count", in_leaf_count, true);
	flip("bad/format__seal_header_bytes", in_header_length, true);
	flip("bad/format__seal_uuid", in_seal_uuid, true);
}

/* ---- bad files: the whole seal made anew ---- */

static void reseal(const char *name, void (*change)(gpusnap_seal *))
{
	gpusnap_plan *plan = one_buffer();
	struct gsnap_file file = make_file(plan, NULL);
	gpusnap_seal seal;
	gpusnap_error err;

	golden_must(gpusnap_seal_decode(file.bytes + file.seal_at, file.length, &seal, &err) ==
			    GPUSNAP_OK,
		name);
	change(&seal);
	gpusnap_seal_encode(&seal, file.bytes + file.seal_at);
	golden_write(name, file.bytes, file.length);
	free_file(&file);
	gpusnap_plan_free(plan);
}

static void set_version_2(gpusnap_seal *seal)
{
	seal->version = 2;
}

static void set_version_0(gpusnap_seal *seal)
{
	seal->version = 0;
}

static void set_required(gpusnap_seal *seal)
{
	seal->required_features = UINT64_C(1) << 63;
}

static void set_parent(gpusnap_seal *seal)
{
	seal->parent_root = numbered(9);
}

static void set_file_bytes(gpusnap_seal *seal)
{
	seal->file_bytes += 4096;
}

static void make_reseals(void)
{
	reseal("bad/unsupported__version_2", set_version_2);
	reseal("bad/format__version_0", set_version_0);
	reseal("bad/unsupported__required_feature", set_required);
	reseal("bad/format__parent_without_feature", set_parent);
	reseal("bad/format__file_length", set_file_bytes);
}

/* ---- bad files: of another length ---- */

static void resize(const char *name, size_t length, uint8_t fill)
{
	gpusnap_plan *plan = one_buffer();
	struct gsnap_file file = make_file(plan, NULL);
	uint8_t *bytes = gsn_alloc(length, 1);

	golden_must(bytes != NULL, "no memory");
	memset(bytes, fill, length);
	memcpy(bytes, file.bytes, length < file.length ? length : file.length);
	golden_write(name, bytes, length);
	gsn_free(bytes);
	free_file(&file);
	gpusnap_plan_free(plan);
}

static void make_lengths(void)
{
	gpusnap_plan *plan = one_buffer();
	struct gsnap_file file = make_file(plan, NULL);
	size_t whole = file.length;

	memset(file.bytes + file.seal_at, 0, GPUSNAP_SEAL_BYTES);
	golden_write("bad/format__seal_not_written", file.bytes, whole);
	free_file(&file);
	gpusnap_plan_free(plan);
	resize("bad/format__truncated_by_1", whole - 1, 0);
	resize("bad/format__truncated_by_the_seal", whole - 4096, 0);
	resize("bad/format__truncated_in_the_header", 100, 0);
	resize("bad/format__empty_file", 0, 0);
	resize("bad/format__appended_1", whole + 1, 'x');
	resize("bad/format__appended_4096", whole + 4096, 'x');
}

/* ---- bad files: all digests right, the plan wrong ---- */

/* The file of `kept` with the plan of `told`. Frees both. */
static void lie(const char *name, gpusnap_plan *kept, gpusnap_plan *told)
{
	char *text = gpusnap_plan_encode(told);
	struct gsnap_file file;

	golden_must(text != NULL, "no memory");
	file = make_file(kept, text);
	golden_write(name, file.bytes, file.length);
	gpusnap_text_free(text);
	free_file(&file);
	gpusnap_plan_free(kept);
	gpusnap_plan_free(told);
}

/* The file of golden_two_regions() with one piece of its plan's text replaced. */
static void misprint(const char *name, const char *from, const char *to)
{
	gpusnap_plan *plan = golden_two_regions();
	char *text = gpusnap_plan_encode(plan), *at = text ? strstr(text, from) : NULL, *changed;
	struct gsnap_file file;

	golden_must(at != NULL, name);
	changed = gsn_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	file = make_file(plan, changed);
	golden_write(name, file.bytes, file.length);
	gsn_free(changed);
	gpusnap_text_free(text);
	free_file(&file);
	gpusnap_plan_free(plan);
}

static void make_lies(void)
{
	gpusnap_plan *told;
	gpusnap_plan *kept;
	const uint64_t shape[] = {64};

	told = golden_two_regions();
	told->uuid[15] ^= 1;
	lie("bad/format__plan_of_another_snapshot", golden_two_regions(), told);
	told = one_buffer();
	told->regions[0].bytes = 128;
	lie("bad/format__lost_unclaimed_bytes", one_buffer(), told);
	lie("bad/format__lost_buffer", one_buffer(), empty_buffer());
	kept = one_buffer();
	make_buffer(kept, "stranger", GPUSNAP_U8, 1, 0, 1, shape);
	lie("bad/format__unclaimed_tensor", kept, one_buffer());
	kept = one_buffer();
	make_buffer(kept, "gpusnap.later", GPUSNAP_U8, 1, 0, 1, shape);
	lie("bad/format__undefined_reserved_name", kept, one_buffer());
}

static void make_misprints(void)
{
	misprint("bad/format__plan_no_json", "{\"format\"", "{format");
	misprint("bad/unsupported__plan_format_2", "\"format\":1", "\"format\":2");
	misprint("bad/format__plan_dtype", "\"BF16\",\"shape\":[3,8,8]",
		"\"F16\",\"shape\":[3,8,8]");
	misprint("bad/format__plan_shape", "[3,8,8]", "[3,4,16]");
	misprint("bad/format__plan_overlap", "\"offset\":256", "\"offset\":255");
	misprint("bad/format__plan_outside", "\"offset\":128", "\"offset\":3073");
	misprint("bad/format__plan_region", "\"region\":2", "\"region\":3");
	misprint("bad/format__plan_policy", "\"discard\"", "\"archive\"");
	misprint("bad/format__plan_role", "\"role\":\"kv\"", "\"role\":\"cache\"");
	misprint("bad/format__plan_mask_missing", "\"mask\":{\"kind\"", "\"musk\":{\"kind\"");
	misprint("bad/format__plan_mask_length", "\"shared\":1", "\"shared\":0");
	misprint("bad/format__plan_view_outside", "\"strides\":[1,4]", "\"strides\":[1,40]");
	misprint("bad/format__plan_view_backwards", "\"strides\":[-1]", "\"strides\":[-2]");
	misprint("bad/format__plan_duplicate_name", "\"name\":\"w13.1\"", "\"name\":\"w13\"");
	misprint("bad/format__plan_rank", "\"ep\":[1,2]", "\"ep\":[2,2]");
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		(void)fprintf(stderr, "usage: make_golden FOLDER\n");
		return 2;
	}
	folder = argv[1];
	make_good();
	make_folder("bad");
	make_flips();
	make_reseals();
	make_lengths();
	make_lies();
	make_misprints();
	golden_bad_deltas();
	return EXIT_SUCCESS;
}
