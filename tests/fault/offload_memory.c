/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of an offload and a resume fails once: an error, no change, no leak. */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/alloc_fault.h"
#include "tests/support/state_fixture.h"

static void check_content(const struct state *state)
{
	state_expect(state, GPUSNAP_REGION_RESIDENT);
	for (size_t r = 0; r < STATE_REGIONS; r++)
		state_check(state, r);
}

START_TEST(every_failed_allocation_of_an_offload_leaves_everything_resident)
{
	for (long n = 0;; n++) {
		struct state state;
		gpusnap_error err;
		gpusnap_status s;
		bool hit;

		state_open(&state, NULL, NULL);
		alloc_fault_set(n);
		s = gpusnap_offload(state.registry, NULL, NULL, &err);
		hit = alloc_fault_hit();
		alloc_fault_set(-1);
		if (s) {
			ck_assert(hit);
			ck_assert_int_eq(s, GPUSNAP_E_NOMEM);
			check_content(&state);
			ck_ok(gpusnap_offload(state.registry, NULL, NULL, &err));
		}
		ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
		check_content(&state);
		state_close(&state);
		if (!hit) {
			ck_assert_int_gt(n, 8);
			break;
		}
	}
}
END_TEST

START_TEST(every_failed_allocation_of_a_resume_leaves_everything_offloaded)
{
	for (long n = 0;; n++) {
		struct state state;
		gpusnap_error err;
		gpusnap_status s;
		bool hit;

		state_open(&state, NULL, NULL);
		ck_ok(gpusnap_offload(state.registry, NULL, NULL, &err));
		alloc_fault_set(n);
		s = gpusnap_resume(state.registry, NULL, NULL, &err);
		hit = alloc_fault_hit();
		alloc_fault_set(-1);
		if (s) {
			ck_assert(hit);
			ck_assert_int_eq(s, GPUSNAP_E_NOMEM);
			state_expect(&state, GPUSNAP_REGION_OFFLOADED);
			ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
			ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
		}
		check_content(&state);
		state_close(&state);
		if (!hit) {
			ck_assert_int_gt(n, 5);
			break;
		}
	}
}
END_TEST

static gpusnap_status build_up(gpusnap_registry *registry, gpusnap_error *err)
{
	static uint8_t memory[256];
	uint64_t shape = 64;
	int64_t stride = 1;
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;
	gpusnap_status s;

	region.tag = "adopted";
	buffer.name = "b";
	buffer.dtype = GPUSNAP_U8;
	buffer.rank = 1;
	buffer.shape = &shape;
	view.name = "v";
	view.buffer = "b";
	view.dtype = GPUSNAP_U8;
	view.rank = 1;
	view.shape = &shape;
	view.strides = &stride;
	s = gpusnap_region_adopt(
		registry, (uintptr_t)memory, sizeof memory, &region, &buffer.region, err);
	if (!s)
		s = gpusnap_buffer_register(registry, &buffer, err);
	if (!s)
		s = gpusnap_view_register(registry, &view, err);
	return s;
}

START_TEST(every_failed_allocation_of_a_registration_changes_nothing)
{
	struct faulty_device faulty;

	faulty_open(&faulty, test_device());
	for (long n = 0;; n++) {
		gpusnap_registry *registry = NULL;
		gpusnap_error err;
		gpusnap_status s;
		bool hit;

		alloc_fault_set(n);
		s = gpusnap_registry_create(&faulty.device, NULL, &registry, &err);
		if (!s)
			s = build_up(registry, &err);
		hit = alloc_fault_hit();
		alloc_fault_set(-1);
		ck_assert_int_eq(s, hit ? GPUSNAP_E_NOMEM : GPUSNAP_OK);
		gpusnap_registry_free(registry);
		if (!hit) {
			ck_assert_int_gt(n, 8);
			break;
		}
	}
	faulty_close(&faulty);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_failed_allocation_of_an_offload_leaves_everything_resident,
		every_failed_allocation_of_a_resume_leaves_everything_offloaded,
		every_failed_allocation_of_a_registration_changes_nothing,
	};

	return RUN_SUITE("offload_memory", tests);
}
