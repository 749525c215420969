/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything below a dispatcher fails once: each allocation, each call of the device. It says so,
 * leaks nothing, and works when asked again.
 */
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/alloc_fault.h"
#include "tests/support/faulty_device.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

struct results {
	gpusnap_dispatch *dispatch;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation validation;
	float *out;
};

static void results_free(struct results *results)
{
	gpusnap_validation_release(&results->validation);
	gpusnap_baseline_free(results->baseline);
	gpusnap_probe_free(results->probe);
	gpusnap_dispatch_free(results->dispatch);
	gsn_free(results->out);
}

static gpusnap_status compare_with_own_values(
	const struct moe_state *state, struct results *results, const float *x, gpusnap_error *err)
{
	gpusnap_reference_result result;
	gpusnap_reference reference = {
		.module = state->model->layers[0].module,
		.tokens = 2,
		.in = x,
		.out = results->out,
	};
	gpusnap_status status =
		gpusnap_reference_compare(results->dispatch, &reference, &result, err);

	if (!status)
		ck_assert(result.agrees);
	return status;
}

/* All that a dispatcher does, a damaged expert included. The damage is undone. */
static gpusnap_status use(
	const struct moe_state *state, struct results *results, const float *x, gpusnap_error *err)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	uint64_t size;
	uint8_t *w2 = moe_state_bytes(state, 1, GPUSNAP_MOE_W2, &size);
	gpusnap_status status =
		gpusnap_dispatch_create(state->registry, state->model, &results->dispatch, err);

	if (!status)
		status = gpusnap_dispatch_build_mask(results->dispatch, 0, err);
	io.tokens = 2;
	io.x = x;
	io.out = results->out;
	if (!status)
		status = gpusnap_decode_layer(results->dispatch, 0, &io, err);
	if (!status)
		status = compare_with_own_values(state, results, x, err);
	if (!status)
		status = gpusnap_probe_record(results->dispatch, NULL, &results->probe, err);
	if (!status)
		status = gpusnap_baseline_from_live(state->registry, &results->baseline, err);
	w2[size - 1] ^= 0x40;
	if (!status)
		status = gpusnap_validate(results->dispatch, results->probe, results->baseline,
			&results->validation, err);
	w2[size - 1] ^= 0x40;
	return status;
}

static void check_results(const struct results *results)
{
	ck_assert(!results->validation.proved);
	ck_assert_uint_eq(results->validation.failure_count, 1);
	ck_assert_str_eq(results->validation.failures[0].buffer, "layers.1.w2");
	ck_assert_int_eq(results->validation.failures[0].expert, 7);
}

static struct moe_shape scaled_shape(void)
{
	struct moe_shape shape = MOE_SHAPE_INIT;

	shape.dtype = GPUSNAP_F8_E4M3;
	shape.mask = GPUSNAP_MASK_DEEPEP;
	return shape;
}

static void results_init(struct results *results, const struct moe_shape *shape)
{
	memset(results, 0, sizeof *results);
	results->out = gsn_alloc(2 * (size_t)shape->hidden, sizeof *results->out);
	ck_assert_ptr_nonnull(results->out);
}

START_TEST(every_failed_allocation_is_told_and_survived)
{
	struct moe_shape shape = scaled_shape();
	float *x = moe_inputs(1, 2 * (size_t)shape.hidden);
	struct moe_state state;
	bool more = true;
	long n;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	for (n = 0; more; n++) {
		struct results results;
		gpusnap_status status;

		results_init(&results, &shape);
		alloc_fault_set(n);
		status = use(&state, &results, x, &err);
		more = alloc_fault_hit();
		alloc_fault_set(-1);
		ck_assert_msg(status == (more ? GPUSNAP_E_NOMEM : GPUSNAP_OK),
			"allocation %ld: %s: %s", n, gpusnap_status_name(status),
			status ? err.message : "");
		if (!status)
			check_results(&results);
		results_free(&results);
	}
	ck_assert_int_gt(n, 60);
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

START_TEST(every_failed_device_call_is_told_and_survived)
{
	struct moe_shape shape = scaled_shape();
	float *x = moe_inputs(1, 2 * (size_t)shape.hidden);
	struct faulty_device faulty;
	struct moe_state state;
	uint64_t mapped;
	bool more = true;
	unsigned n;
	gpusnap_error err;

	faulty_open(&faulty, test_device());
	shape.device = &faulty.device;
	faulty.ops.caps &= ~(uint32_t)GSN_CAP_HOST_ADDRESSABLE;
	moe_state_make(&state, &shape);
	mapped = faulty.mapped_bytes;
	for (n = 1; more; n++) {
		struct results results;
		gpusnap_status status;

		results_init(&results, &shape);
		faulty_arm(&faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
		status = use(&state, &results, x, &err);
		more = !faulty_is_armed(&faulty);
		faulty_arm(&faulty, FAULTY_ANY, 0, GPUSNAP_OK);
		ck_assert_msg(status == (more ? GPUSNAP_E_DEVICE : GPUSNAP_OK), "call %u: %s: %s",
			n, gpusnap_status_name(status), status ? err.message : "");
		if (!status)
			check_results(&results);
		results_free(&results);
		ck_assert_uint_eq(faulty.mapped_bytes, mapped);
		ck_assert_uint_eq(faulty.pinned_blocks, 0);
	}
	ck_assert_uint_gt(n, 100);
	moe_state_free(&state);
	faulty_close(&faulty);
	gsn_free(x);
}
END_TEST

/* A device whose memory the host must copy to look at gives the same record. */
START_TEST(a_device_that_the_host_cannot_address_gives_the_same_record)
{
	struct moe_shape shape = scaled_shape();
	struct faulty_device faulty;
	struct moe_state near, far;
	gpusnap_probe *a, *b;
	uint64_t size;
	uint8_t *w13;
	gpusnap_error err;

	moe_state_make(&near, &shape);
	faulty_open(&faulty, test_device());
	shape.device = &faulty.device;
	faulty.ops.caps &= ~(uint32_t)GSN_CAP_HOST_ADDRESSABLE;
	moe_state_make(&far, &shape);
	ck_ok(gpusnap_probe_record(near.dispatch, NULL, &a, &err));
	ck_ok(gpusnap_probe_record(far.dispatch, NULL, &b, &err));
	ck_assert(gpusnap_digest_equal(a->digest, b->digest));
	gpusnap_probe_free(b);
	w13 = moe_state_bytes(&far, 0, GPUSNAP_MOE_W13, &size);
	w13[size - 1] = 0xff;
	ck_fails(gpusnap_probe_record(far.dispatch, NULL, &b, &err), GPUSNAP_E_NOT_PROVED,
		"expert 7 (F8_E4M3) is a NaN code");
	gpusnap_probe_free(a);
	moe_state_free(&near);
	moe_state_free(&far);
	faulty_close(&faulty);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_failed_allocation_is_told_and_survived,
		every_failed_device_call_is_told_and_survived,
		a_device_that_the_host_cannot_address_gives_the_same_record,
	};

	return RUN_SUITE("dispatch_faults", tests);
}
