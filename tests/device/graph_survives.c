/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA graph holds addresses. One that was captured before an offload runs after the resume, on
 * the bytes that were put back. The device's name is the argument.
 */
#include <gpusnap/snapshot.h>

#include "kernels/gpu_device.h"
#include "tests/device/fixture.h"

enum { TOKENS = 4, HIDDEN = 4096, TOP_K = 2 };

static const char *device_name = "cuda:0";

/* y [tokens, top_k, hidden] and its sum over slots, in one region. */
struct sums {
	struct fixture f;
	gpusnap_registry *registry;
	gpusnap_address y, out, counters;
	float *values;
	struct gsn_stream *stream;
	cudaGraphExec_t graph;
};

#define Y_BYTES	  ((uint64_t)TOKENS * TOP_K * HIDDEN * sizeof(float))
#define OUT_BYTES ((uint64_t)TOKENS * HIDDEN * sizeof(float))

static void sums_open(struct sums *s)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_region_info info;
	uint32_t region;
	gpusnap_error err;

	*s = (struct sums){.f = fixture_open(device_name)};
	s->stream = new_stream(&s->f);
	ck_ok(gpusnap_registry_create(s->f.device, NULL, &s->registry, &err));
	options.tag = "weights";
	ck_ok(gpusnap_region_reserve(s->registry, s->f.granule, &options, &region, &err));
	ck_ok(gpusnap_region_get(s->registry, region, &info, &err));
	s->y = info.address;
	s->out = s->y + Y_BYTES;
	s->counters = s->out + OUT_BYTES;
	s->values = malloc(Y_BYTES);
	ck_assert_ptr_nonnull(s->values);
	for (uint32_t i = 0; i < Y_BYTES / sizeof(float); i++)
		s->values[i] = (float)(i % 1024);
	put(&s->f, s->y, s->values, Y_BYTES);
}

static void capture(struct sums *s)
{
	const struct gsn_moe_combine combine = {.tokens = TOKENS,
		.hidden = HIDDEN,
		.top_k = TOP_K,
		.y = s->y,
		.out = s->out,
		.counters = s->counters};
	cudaStream_t stream = s->stream->handle;
	cudaGraph_t graph;
	gpusnap_error err;

	ck_ok(s->f.ops->moe_combine(s->stream, &combine, &err)); /* loads the kernel */
	ck_ok(s->f.ops->stream_sync(s->stream, &err));
	ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), 0);
	ck_ok(s->f.ops->moe_combine(s->stream, &combine, &err));
	ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), 0);
	ck_assert_int_eq(cudaGraphInstantiate(&s->graph, graph, 0), 0);
	ck_assert_int_eq(cudaGraphDestroy(graph), 0);
}

static void run_and_check(struct sums *s)
{
	static float out[TOKENS * HIDDEN];
	gpusnap_error err;

	ck_ok(s->f.ops->fill(s->stream, s->out, 0xff, OUT_BYTES, &err));
	ck_assert_int_eq(cudaGraphLaunch(s->graph, s->stream->handle), 0);
	ck_ok(s->f.ops->stream_sync(s->stream, &err));
	get(&s->f, out, s->out, OUT_BYTES);
	for (uint32_t i = 0; i < TOKENS * HIDDEN; i++) {
		const float *y = s->values + (size_t)(i / HIDDEN) * TOP_K * HIDDEN + i % HIDDEN;

		ck_assert_float_eq(out[i], y[0] + y[HIDDEN]);
	}
}

START_TEST(a_graph_captured_before_an_offload_runs_after_the_resume)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report report;
	gpusnap_error err;
	struct sums s;

	sums_open(&s);
	capture(&s);
	run_and_check(&s);
	options.backing = GPUSNAP_BACKING_ARENA;
	ck_ok(gpusnap_offload(s.registry, &options, &report, &err));
	ck_assert_uint_eq(report.freed_bytes, s.f.granule);
	ck_ok(gpusnap_resume(s.registry, &options, NULL, &err));
	run_and_check(&s);
	ck_assert_int_eq(cudaGraphExecDestroy(s.graph), 0);
	s.f.ops->stream_destroy(s.stream);
	gpusnap_registry_free(s.registry);
	fixture_close(&s.f);
	free(s.values);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {a_graph_captured_before_an_offload_runs_after_the_resume};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	return RUN_SUITE("graph_survives", tests);
}
