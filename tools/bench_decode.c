/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench_decode.h"

#include <stdlib.h>

#include <gpusnap/moe.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "kernels/device_calls.h"

enum {
	HIDDEN = 2048,
	INTERMEDIATE = 768,
	EXPERTS = 128,
	TOP_K = 8,
	BLOCK = 128, /* of a scale, both ways */
	STEPS = 48,  /* and layers, where there is room */
	PARTS = 8,
};

#define WEIGHTS	   ((uint64_t)EXPERTS * 3 * INTERMEDIATE * HIDDEN) /* of a layer */
#define HOST_BYTES ((uint64_t)4 << 30)				   /* of layers */

enum part { W13, W2, SCALES, INPUTS, IDS, ROUTER_WEIGHTS, MASK, REST };

/* One range of device memory, shared out. */
struct decode {
	const struct bench_session *session;
	gpusnap_dtype dtype;
	uint32_t batch, layers;
	uint64_t granule;
	gpusnap_address memory;
	uint64_t bytes;
	uint64_t offset[PARTS];
	gpusnap_address scratch, y, out, counters; /* in REST */
	struct gsn_stream *stream;
	int32_t *ids; /* [STEPS, batch, TOP_K] */
	uint64_t experts_read;
};

static bool is_scaled(const struct decode *d)
{
	return d->dtype == GPUSNAP_F8_E4M3;
}

static uint64_t element_bytes(const struct decode *d)
{
	return gpusnap_dtype_bits(d->dtype) / 8;
}

static struct gsn_moe_experts experts_of(const struct decode *d, uint32_t step)
{
	const uint64_t layer = step % d->layers, bytes = element_bytes(d);
	const uint64_t w2_scale = WEIGHTS / 3 * 2 / BLOCK / BLOCK * sizeof(float);

	return (struct gsn_moe_experts){.tokens = d->batch,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = d->dtype,
		.block_n = is_scaled(d) ? BLOCK : 0,
		.block_k = is_scaled(d) ? BLOCK : 0,
		.x = d->memory + d->offset[INPUTS],
		.ids = d->memory + d->offset[IDS] + (uint64_t)step * d->batch * TOP_K * 4,
		.weights = d->memory + d->offset[ROUTER_WEIGHTS],
		.mask = d->memory + d->offset[MASK],
		.mask_length = EXPERTS,
		.w13 = d->memory + d->offset[W13] + layer * (WEIGHTS / 3 * 2) * bytes,
		.w13_scale = is_scaled(d) ? d->memory + d->offset[SCALES] : 0,
		.w2 = d->memory + d->offset[W2] + layer * (WEIGHTS / 3) * bytes,
		.w2_scale = is_scaled(d) ? d->memory + d->offset[SCALES] + w2_scale : 0,
		.scratch = d->scratch,
		.y = d->y,
		.counters = d->counters,
		.scale_dtype = GPUSNAP_F32};
}

/* Where the parts are; ends with the size of all. */
static void lay_out(struct decode *d)
{
	const uint64_t bytes = element_bytes(d), pairs = (uint64_t)d->batch * TOP_K;
	const struct gsn_moe_experts experts = experts_of(d, 0);
	const uint64_t scratch = d->session->device->ops->moe_scratch_bytes(&experts);
	const uint64_t y = pairs * HIDDEN * 4, out = (uint64_t)d->batch * HIDDEN * 4;
	const uint64_t sizes[PARTS] = {
		[W13] = d->layers * (WEIGHTS / 3 * 2) * bytes,
		[W2] = d->layers * (WEIGHTS / 3) * bytes,
		[SCALES] = WEIGHTS / BLOCK / BLOCK * sizeof(float),
		[INPUTS] = (uint64_t)d->batch * HIDDEN * 4,
		[IDS] = STEPS * pairs * 4,
		[ROUTER_WEIGHTS] = pairs * 4,
		[MASK] = EXPERTS * sizeof(int32_t),
		[REST] = gsn_align_up(scratch, 256) + y + out + sizeof(struct gsn_moe_counters),
	};
	uint64_t rest;

	for (int i = 0; i < PARTS; i++) {
		d->offset[i] = gsn_align_up(d->bytes, 256);
		d->bytes = d->offset[i] + sizes[i];
	}
	d->bytes = gsn_align_up(d->bytes, d->granule);
	rest = d->offset[REST];
	d->scratch = rest;
	d->y = rest + gsn_align_up(scratch, 256);
	d->out = d->y + y;
	d->counters = d->out + out;
}

/* TOP_K experts of each token, all different; how many a step reads. */
static void choose_experts(struct decode *d)
{
	uint32_t random = 12345;

	for (uint32_t step = 0; step < STEPS; step++) {
		bool read[EXPERTS] = {false};

		for (uint32_t i = 0; i < d->batch * TOP_K; i++) {
			int32_t *ids = d->ids + ((uint64_t)step * d->batch + i / TOP_K) * TOP_K;
			uint32_t first = i % TOP_K * (EXPERTS / TOP_K);

			random = random * 1664525u + 1013904223u; /* Numerical Recipes */
			ids[i % TOP_K] = (int32_t)(first + (random >> 16) % (EXPERTS / TOP_K));
			d->experts_read += !read[ids[i % TOP_K]];
			read[ids[i % TOP_K]] = true;
		}
	}
}

static gpusnap_status upload(const struct decode *d, enum part part, const void *values,
	uint64_t bytes, gpusnap_error *err)
{
	return gsn_device_copy_sync(d->session->device, GSN_HOST_TO_DEVICE,
		d->memory + d->offset[part], gsn_host_address(values), bytes, err);
}

/*
 * BF16 from 2^-7 to 2, E4M3 from 2^-6 to 2: weights that were scaled to the format's range have
 * hardly any subnormals, which some processors are slow with.
 */
static gpusnap_status fill(struct decode *d, gpusnap_error *err)
{
	const uint64_t keep =
		is_scaled(d) ? UINT64_C(0xbfbfbfbfbfbfbfbf) : UINT64_C(0x83ff83ff83ff83ff);
	const uint64_t set =
		is_scaled(d) ? UINT64_C(0x0808080808080808) : UINT64_C(0x3c003c003c003c00);
	uint64_t floats =
		gsn_max(WEIGHTS / BLOCK / BLOCK, gsn_max((uint64_t)d->batch * HIDDEN, EXPERTS));
	float *values = malloc(floats * sizeof *values);
	int32_t ones[EXPERTS];
	gpusnap_status s;

	if (!values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %llu scales",
			(unsigned long long)floats);
	for (uint64_t i = 0; i < floats; i++)
		values[i] = 0.01f;
	for (uint32_t i = 0; i < EXPERTS; i++)
		ones[i] = 1;
	s = bench_session_random(d->session, d->memory, d->offset[SCALES], keep, set, err);
	if (!s)
		s = upload(d, SCALES, values, WEIGHTS / BLOCK / BLOCK * sizeof(float), err);
	if (!s)
		s = upload(d, INPUTS, values, (uint64_t)d->batch * HIDDEN * 4, err);
	if (!s)
		s = upload(d, ROUTER_WEIGHTS, values, (uint64_t)d->batch * TOP_K * 4, err);
	if (!s)
		s = upload(d, MASK, ones, sizeof ones, err);
	if (!s)
		s = upload(d, IDS, d->ids, (uint64_t)STEPS * d->batch * TOP_K * 4, err);
	free(values);
	return s;
}

static gpusnap_status take_memory(struct decode *d, gpusnap_error *err)
{
	const gpusnap_device *device = d->session->device;
	gpusnap_device_properties properties;
	gpusnap_status s = device->ops->query(device->context, &properties, err);

	if (s)
		return s;
	if (device->ops->caps & GSN_CAP_HOST_ADDRESSABLE)
		properties.free_bytes = gsn_min(properties.free_bytes, 2 * HOST_BYTES);
	d->granule = properties.granule_bytes;
	d->layers = (uint32_t)gsn_max(
		1, gsn_min(STEPS, properties.free_bytes / 2 / (WEIGHTS * element_bytes(d))));
	lay_out(d);
	s = device->ops->stream_create(device->context, &d->stream, err);
	if (!s)
		s = device->ops->reserve(device->context, d->bytes, &d->memory, err);
	if (s)
		return s;
	d->scratch += d->memory;
	d->y += d->memory;
	d->out += d->memory;
	d->counters += d->memory;
	return device->ops->map(device->context, d->memory, d->bytes, 0, err);
}

static gpusnap_status run_steps(const struct decode *d, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = d->session->device->ops;
	const struct gsn_moe_combine combine = {.tokens = d->batch,
		.hidden = HIDDEN,
		.top_k = TOP_K,
		.y = d->y,
		.out = d->out,
		.counters = d->counters};
	gpusnap_status s = GPUSNAP_OK;

	for (uint32_t step = 0; !s && step < STEPS; step++) {
		const struct gsn_moe_experts experts = experts_of(d, step);

		s = ops->moe_experts(d->stream, &experts, err);
		if (!s)
			s = ops->moe_combine(d->stream, &combine, err);
	}
	return s ? s : ops->stream_sync(d->stream, err);
}

static void decode_close(struct decode *d)
{
	const gpusnap_device *device = d->session->device;

	device->ops->stream_destroy(d->stream);
	if (d->memory)
		device->ops->release(device->context, d->memory, d->bytes);
	free(d->ids);
}

gpusnap_status bench_decode(const struct bench_session *session, gpusnap_dtype dtype,
	uint32_t batch, double *ret_rate, gpusnap_error *err)
{
	struct decode d = {.session = session, .dtype = dtype, .batch = batch};
	uint64_t expert;
	double start = 0;
	gpusnap_status s;

	d.ids = malloc((size_t)STEPS * batch * TOP_K * sizeof *d.ids);
	if (!d.ids)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for expert ids");
	choose_experts(&d);
	s = take_memory(&d, err);
	if (!s)
		s = fill(&d, err);
	if (!s)
		s = run_steps(&d, err); /* kernels are loaded, links awake */
	if (!s) {
		start = gsn_clock_seconds();
		s = run_steps(&d, err);
	}
	expert = WEIGHTS * element_bytes(&d) / EXPERTS;
	if (!s)
		*ret_rate = (double)(d.experts_read * expert) / (gsn_clock_seconds() - start);
	decode_close(&d);
	return s;
}
