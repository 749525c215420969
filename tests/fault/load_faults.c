/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything below a load fails once: each allocation, each call of the device, the disk under a
 * shard. The load says so, and registry, device and pinned memory are as before.
 */
#include <gpusnap/loader.h>

#include "loader/load_run.h"
#include "loader/rank_state.h"
#include "tests/support/alloc_fault.h"
#include "tests/support/checkpoint_copy.h"
#include "tests/support/faulty_device.h"

static char scratch[PATH_MAX];

#define DIRECTORY GPUSNAP_TEST_DATA "/checkpoints/mixtral"

static void check_untouched(gpusnap_registry *registry)
{
	ck_assert_uint_eq(gpusnap_region_count(registry), 0);
	ck_assert_uint_eq(gpusnap_buffer_count(registry), 0);
	ck_assert_ptr_null(gpusnap_record_get(registry, "model"));
}

START_TEST(every_failing_allocation_is_survived)
{
	gpusnap_device *device;
	long failures = 0;
	bool more = true;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(test_device(), &device, &err));
	for (long n = 0; more; n++) {
		gpusnap_registry *registry;
		gpusnap_loaded loaded;
		gpusnap_status st;

		ck_ok(gpusnap_registry_create(device, NULL, &registry, &err));
		alloc_fault_set(n);
		st = gpusnap_load(registry, DIRECTORY, NULL, &loaded, &err);
		more = alloc_fault_hit();
		alloc_fault_set(-1);
		if (st) {
			/* What cannot be probed for want of memory may be unsupported instead. */
			ck_assert_msg(st == GPUSNAP_E_NOMEM, "allocation %ld: %s: %s", n,
				gpusnap_status_name(st), err.message);
			check_untouched(registry);
			failures++;
		} else {
			gpusnap_loaded_release(&loaded);
		}
		gpusnap_registry_free(registry);
	}
	ck_assert_int_gt(failures, 100);
	gpusnap_device_close(device);
}
END_TEST

static void fail_device_call(enum faulty_call call, unsigned n, bool *ret_reached)
{
	struct faulty_device faulty;
	gpusnap_registry *registry;
	gpusnap_loaded loaded;
	gpusnap_status st;
	gpusnap_error err;

	faulty_open(&faulty, test_device());
	faulty.ops.caps &= ~(uint32_t)GSN_CAP_HOST_ADDRESSABLE; /* or nothing would be copied */
	ck_ok(gpusnap_registry_create(&faulty.device, NULL, &registry, &err));
	faulty_arm(&faulty, call, n, GPUSNAP_E_DEVICE);
	st = gpusnap_load(registry, DIRECTORY, NULL, &loaded, &err);
	*ret_reached = !faulty_is_armed(&faulty);
	faulty_arm(&faulty, call, 0, GPUSNAP_OK);
	ck_assert_msg((st == GPUSNAP_E_DEVICE) == *ret_reached, "%s call %u: %s",
		faulty_call_name(call), n, gpusnap_status_name(st));
	if (st)
		check_untouched(registry);
	else
		gpusnap_loaded_release(&loaded);
	ck_assert_uint_eq(faulty.pinned_blocks, 0);
	gpusnap_registry_free(registry);
	ck_assert_uint_eq(faulty.mapped_bytes, 0);
	faulty_close(&faulty);
}

START_TEST(every_failing_device_call_is_reported)
{
	static const enum faulty_call calls[] = {FAULTY_RESERVE, FAULTY_MAP, FAULTY_PINNED_ALLOC,
		FAULTY_STREAM_CREATE, FAULTY_EVENT_CREATE, FAULTY_COPY, FAULTY_EVENT_RECORD,
		FAULTY_STREAM_SYNC};

	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		unsigned n = 1;
		bool reached = true;

		for (; reached; n++)
			fail_device_call(calls[i], n, &reached);
		ck_assert_msg(n > 2, "%s is never called", faulty_call_name(calls[i]));
	}
}
END_TEST

/* ---- a shard that shrinks ---- */

/* A checkpoint that is opened and planned, but not read yet. */
struct planned {
	char folder[PATH_MAX];
	struct gsn_checkpoint checkpoint;
	struct gsn_rank_state state;
	struct gsn_config config;
	gpusnap_device *device;
	uint8_t *targets;
};

static void plan(struct planned *p)
{
	const struct gsn_rank rank = {.tp_size = 1, .ep_size = 1, .mask = GPUSNAP_MASK_STANDARD};
	gpusnap_error err;

	tempdir_make(p->folder, scratch);
	copy_checkpoint(DIRECTORY, p->folder);
	ck_ok(gpusnap_device_open(test_device(), &p->device, &err));
	ck_ok(gsn_checkpoint_open(p->folder, NULL, &p->checkpoint, &err));
	ck_ok(gsn_config_read(p->folder, &p->config, &err));
	ck_ok(gsn_rank_state_build(&p->checkpoint, &p->config, &rank, &p->state, &err));
	p->targets = calloc(p->state.bytes, 1);
	ck_assert_ptr_nonnull(p->targets);
}

static gpusnap_status run(struct planned *p, const gpusnap_io_options *io, gpusnap_error *err)
{
	gpusnap_load_report report = {0};
	struct gsn_load_job job = {
		.checkpoint = &p->checkpoint,
		.views = p->state.views,
		.view_count = p->state.view_count,
		.bytes = p->state.bytes,
		.address = (gpusnap_address)(uintptr_t)p->targets,
		.device = p->device,
		.io = io,
	};

	return gsn_load_run(&job, &report, err);
}

static void release(struct planned *p)
{
	free(p->targets);
	gsn_rank_state_release(&p->state);
	gsn_config_release(&p->config);
	gsn_checkpoint_close(&p->checkpoint);
	gpusnap_device_close(p->device);
	tempdir_remove(p->folder);
}

/* Between the opening of the shards and the reads, one of them loses its last bytes. */
static void shrink_with(gpusnap_io_engine engine)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	struct planned planned = {0};
	char path[PATH_MAX];
	gpusnap_status st;
	gpusnap_error err;

	io.engine = engine;
	plan(&planned);
	st = run(&planned, &io, &err);
	if (st == GPUSNAP_E_UNSUPPORTED) { /* no io_uring, or no direct I/O, on this system */
		release(&planned);
		return;
	}
	ck_assert_int_eq(st, GPUSNAP_OK);
	tempdir_join(path, planned.folder, "model-00002-of-00003.safetensors");
	for (uint64_t bytes = planned.checkpoint.shards[1].file.bytes - 1; bytes > 100;
		bytes /= 3) {
		assert(truncate(path, (off_t)bytes) == 0);
		ck_fails(run(&planned, &io, &err), GPUSNAP_E_IO,
			"model-00002-of-00003.safetensors ends ");
		ck_fails(gsn_checkpoint_unchanged(&planned.checkpoint, &err), GPUSNAP_E_IO,
			"when the load began");
	}
	release(&planned);
}

START_TEST(a_shard_that_shrinks_before_it_is_read_is_named)
{
	for (int engine = GPUSNAP_IO_AUTO; engine <= GPUSNAP_IO_MMAP; engine++)
		shrink_with((gpusnap_io_engine)engine);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_failing_allocation_is_survived,
		every_failing_device_call_is_reported,
		a_shard_that_shrinks_before_it_is_read_is_named,
	};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("load_faults", tests);
	tempdir_remove(scratch);
	return result;
}
