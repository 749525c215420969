/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DEVICE_OPS_H
#define GSN_DEVICE_OPS_H
/*
 * The device table: what a device kind must be able to do. One const instance per kind, checked
 * once when it is registered (device.c), so that callers need not test for missing slots.
 *
 * Work given to a stream runs in order and later; memory it names must stay until it is done.
 * Failures of asynchronous work surface at the next stream_sync or event_sync; a stream_sync that
 * reports one has waited all the same, and no work of the stream is running any more.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/device.h>
#include <gpusnap/digest.h>
#include <gpusnap/dtype.h>

#define GSN_DEVICE_ABI 3u

struct gsn_stream; /* owned by the device kind */
struct gsn_event;

enum gsn_copy_direction { GSN_HOST_TO_DEVICE, GSN_DEVICE_TO_HOST, GSN_DEVICE_TO_DEVICE };

/* Capabilities and quirks are data, so that no caller asks for a vendor. */
enum gsn_device_caps {
	GSN_CAP_HOST_ADDRESSABLE = 1u << 0, /* device addresses are host pointers */
};

/* `rows` runs of row_bytes, src_stride apart, written dst_stride apart. */
struct gsn_strided_copy {
	gpusnap_address dst;
	gpusnap_address src;
	uint64_t row_bytes;
	uint64_t rows;
	uint64_t dst_stride;
	uint64_t src_stride;
};

/* Consecutive leaves of one buffer: bytes [address, address + bytes), digests to out[0..). */
struct gsn_leaf_range {
	gpusnap_address address; /* of a leaf's first byte */
	uint64_t bytes;
	/* host memory, gpusnap_leaf_count(bytes) entries; page-locked is best: pinned_alloc */
	gpusnap_digest *out;
};

/* Faults that MoE kernels raise, or-ed into a counter; a NaN is never sanitised. */
enum gsn_moe_fault {
	GSN_MOE_FAULT_NAN_LOGIT = 1u << 0, /* of a logit, or of what experts are chosen by */
	GSN_MOE_FAULT_LOCAL_ID = 1u << 1,  /* mask gives a local id that the rank does not hold */
	GSN_MOE_FAULT_EXPERT_ID = 1u << 2, /* an id outside the mask */
	GSN_MOE_FAULT_NONFINITE = 1u << 3, /* an output is NaN or infinite */
	GSN_MOE_FAULT_HASH = 1u << 4,	   /* a token id outside the table, or an expert id in it */
};

struct gsn_moe_counters {
	uint64_t local;	 /* (token, slot) pairs computed here */
	uint64_t remote; /* pairs whose expert is another rank's */
	uint32_t faults; /* enum gsn_moe_fault */
	uint32_t reserved;
};

#define GSN_MOE_GROUPS_MAX 64u /* GPUSNAP_MOE_GROUPS_MAX */

/*
 * Route `tokens` inputs: x [tokens, hidden] F32 -> logits, ids, weights. All device memory. What
 * follows `counters` is zero where the layer has none of it; selection bias, groups and hash go
 * with scores of single experts: sigmoid, sqrt softplus.
 */
struct gsn_moe_route {
	uint32_t tokens, hidden, experts, top_k;
	uint32_t score; /* gpusnap_score */
	uint32_t renormalise;
	gpusnap_dtype router_dtype; /* BF16, F16 or F32 */
	gpusnap_address x;	    /* F32 [tokens, hidden] */
	gpusnap_address router;	    /* [experts, hidden] */
	gpusnap_address logits;	    /* out F32 [tokens, experts] */
	gpusnap_address ids;	 /* out I32 [tokens, top_k], global, best first; tie: lower index */
	gpusnap_address weights; /* out F32 [tokens, top_k] */
	gpusnap_address counters;	/* out, struct gsn_moe_counters: added to, or-ed into */
	gpusnap_address selection_bias; /* [experts], added to scores for the choice alone */
	gpusnap_dtype selection_bias_dtype;
	uint32_t groups;      /* equal runs of experts, at most GSN_MOE_GROUPS_MAX */
	uint32_t top_groups;  /* of them that experts are chosen from */
	float scale;	      /* of the weights */
	gpusnap_address keys; /* scratch F32 [tokens, experts]; not needed by softmaxes and hash */
	gpusnap_address router_bias; /* [experts], added to the dot products: part of the logits */
	gpusnap_dtype router_bias_dtype;
	/*
	 * Hash routing: ids[t][s] = hash[token_ids[t]][s], in the table's order; scores only make
	 * the weights. No selection bias and no groups then. An id outside gives expert 0 with
	 * weight 0 and the fault HASH.
	 */
	gpusnap_dtype hash_dtype;  /* I32 or I64 */
	gpusnap_address hash;	   /* [vocabulary, top_k] */
	gpusnap_address token_ids; /* I32 [tokens] */
	uint32_t vocabulary;
	uint32_t reserved;
};

/*
 * Run the experts of this rank: y[t][s] = weight[t][s] * E_id(x[t]) for the (token, slot) pairs
 * that the mask keeps, 0 for the others. One row per slot, so that ranks can be summed slot by
 * slot and give the bits of a single rank.
 */
struct gsn_moe_experts {
	uint32_t tokens, hidden, intermediate, top_k;
	uint32_t local_experts; /* experts that w13 and w2 hold */
	uint32_t activation;	/* gpusnap_activation */
	/* BF16, F16, F32, F8_E4M3, or F4: E2M1, element 2j in the low nibble of byte j */
	gpusnap_dtype weight_dtype;
	uint32_t block_n, block_k; /* rows, columns per scale; 0 without scales */
	gpusnap_address x;	   /* F32 [tokens, hidden] */
	gpusnap_address ids;	   /* I32 [tokens, top_k], as the mask indexes them */
	gpusnap_address weights;   /* F32 [tokens, top_k] */
	gpusnap_address mask; /* I32 [mask_length]; local id = exclusive prefix sum of the values */
	uint32_t mask_length;
	uint32_t reserved;
	gpusnap_address w13, w13_scale; /* scale 0 where there is none */
	gpusnap_address w2, w2_scale;
	gpusnap_address scratch; /* gsn_moe_scratch_bytes() */
	gpusnap_address y;	 /* out F32 [tokens, top_k, hidden] */
	gpusnap_address counters;
	gpusnap_dtype scale_dtype;	   /* F32, or F8_E8M0: 2^(code - 127), 255 is NaN */
	gpusnap_dtype bias_dtype;	   /* BF16, F16 or F32 */
	gpusnap_address w13_bias, w2_bias; /* [local, 2 I], [local, H]; 0: none */
	float limit;			   /* of the activation; 0: none */
	uint32_t weight_before_w2; /* y = W2 (weight h) + weight bias, not weight (W2 h + bias) */
};

/*
 * Rewrite global expert ids to the ids that a deepep mask is indexed by: id - first inside the
 * rank's block [first, first + local), `local` (the sink) for every other one. DeepEP's dispatch
 * does this where tokens are received; here it costs one small launch and no host round trip.
 */
struct gsn_moe_localise {
	uint32_t pairs; /* tokens * top_k */
	uint32_t first, local;
	uint32_t reserved;
	gpusnap_address ids; /* I32 [pairs], global */
	gpusnap_address out; /* I32 [pairs]; may be `ids` */
};

/* out[t] = sum over slots s = 0, 1, ... of y[t][s], then shared[t], added in that order, F32. */
struct gsn_moe_combine {
	uint32_t tokens, hidden, top_k, reserved;
	gpusnap_address y;   /* F32 [tokens, top_k, hidden] */
	gpusnap_address out; /* F32 [tokens, hidden] */
	gpusnap_address counters;
	gpusnap_address shared; /* F32 [tokens, hidden]; 0: none */
};

/* out[t] = x[t] / sqrt(mean(x[t]^2) + epsilon) * weight; F32 in and out. */
struct gsn_rms_norm {
	uint32_t tokens, hidden;
	float epsilon;
	gpusnap_dtype weight_dtype; /* BF16, F16 or F32 */
	gpusnap_address x, weight, out;
};

struct gsn_device_ops {
	uint32_t abi;	  /* GSN_DEVICE_ABI */
	uint32_t caps;	  /* enum gsn_device_caps */
	const char *kind; /* "host", "cuda", "hip" */

	/* Number of devices. E_NODEV: none usable here, the message says why; not a failure. */
	gpusnap_status (*count)(uint32_t *ret_count, gpusnap_error *err);
	gpusnap_status (*open)(uint32_t index, void **ret_context, gpusnap_error *err);
	void (*close)(void *context);
	gpusnap_status (*query)(void *context, gpusnap_device_properties *ret, gpusnap_error *err);

	/*
	 * Address ranges, multiples of granule_bytes. A map lies in one reservation and meets no
	 * other map; an unmap names a range as it was mapped, or E_STATE. Every byte of mapped
	 * memory is `fill`; touching an unmapped range faults. Release drops what is still mapped.
	 */
	gpusnap_status (*reserve)(
		void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err);
	gpusnap_status (*map)(void *context, gpusnap_address address, uint64_t bytes, uint8_t fill,
		gpusnap_error *err);
	gpusnap_status (*unmap)(
		void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	void (*release)(void *context, gpusnap_address address, uint64_t bytes);

	/* Page-locked host memory: anonymous, huge pages where possible, touched. */
	gpusnap_status (*pinned_alloc)(
		void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err);
	void (*pinned_free)(void *context, void *memory, uint64_t bytes);

	/*
	 * Page-lock whole pages of anonymous memory (pages.h), best touched already, and let go of
	 * them. Drivers lock one piece at a time, and submit no work meanwhile: let the thread pin
	 * that submits.
	 */
	gpusnap_status (*pin)(void *context, void *memory, uint64_t bytes, gpusnap_error *err);
	void (*unpin)(void *context, void *memory, uint64_t bytes);

	gpusnap_status (*stream_create)(void *context, struct gsn_stream **ret, gpusnap_error *err);
	void (*stream_destroy)(struct gsn_stream *stream); /* waits for its work; takes NULL */
	gpusnap_status (*stream_sync)(struct gsn_stream *stream, gpusnap_error *err);
	gpusnap_status (*event_create)(void *context, struct gsn_event **ret, gpusnap_error *err);
	void (*event_destroy)(struct gsn_event *event); /* takes NULL */
	/* Mark the work given to the stream so far; record may be repeated. */
	gpusnap_status (*event_record)(
		struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err);
	gpusnap_status (*event_sync)(struct gsn_event *event, gpusnap_error *err);
	/* Later work of `stream` starts after the event's last record. */
	gpusnap_status (*stream_wait)(
		struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err);

	/*
	 * E_INVALID at once: no address, a range past the last address, a stride shorter than its
	 * row, source and destination that overlap (first row's begin to last row's end). Zero
	 * bytes are no work.
	 */
	gpusnap_status (*copy)(struct gsn_stream *stream, enum gsn_copy_direction direction,
		uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
	gpusnap_status (*copy_strided)(struct gsn_stream *stream, enum gsn_copy_direction direction,
		const struct gsn_strided_copy *copy, gpusnap_error *err);
	gpusnap_status (*fill)(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
		uint64_t bytes, gpusnap_error *err);
	/* XXH3-128 of every leaf of every range; `ranges` is copied. */
	gpusnap_status (*digest)(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
		size_t range_count, gpusnap_error *err);

	uint64_t (*moe_scratch_bytes)(const struct gsn_moe_experts *args);
	gpusnap_status (*moe_route)(
		struct gsn_stream *stream, const struct gsn_moe_route *args, gpusnap_error *err);
	gpusnap_status (*moe_localise)(
		struct gsn_stream *stream, const struct gsn_moe_localise *args, gpusnap_error *err);
	gpusnap_status (*moe_experts)(
		struct gsn_stream *stream, const struct gsn_moe_experts *args, gpusnap_error *err);
	gpusnap_status (*moe_combine)(
		struct gsn_stream *stream, const struct gsn_moe_combine *args, gpusnap_error *err);
	gpusnap_status (*rms_norm)(
		struct gsn_stream *stream, const struct gsn_rms_norm *args, gpusnap_error *err);
};

struct gpusnap_device {
	const struct gsn_device_ops *ops;
	void *context;
	uint32_t index;
	char name[32];
};

/* A device module (libgpusnap-cuda.so, libgpusnap-hip.so) exports this one function. */
#define GSN_DEVICE_MODULE_SYMBOL "gpusnap_device_module"
typedef const struct gsn_device_ops *(*gsn_device_module_fn)(void);

/* Kinds that a name may begin with, host first; NULL past the end. */
const char *gsn_device_kind_name(uint32_t index);
/*
 * The kind's table, checked: every slot set, this build's ABI. A module that is loaded stays
 * loaded. E_NODEV: the module is not there or does not load, E_UNSUPPORTED: not this build's.
 */
gpusnap_status gsn_device_kind_open(
	const char *kind, const struct gsn_device_ops **ret_ops, gpusnap_error *err);

#endif
