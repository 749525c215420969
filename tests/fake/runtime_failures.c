/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the runtime fails: the n-th, for each n, once and from then on. What was asked for
 * works or is refused with an error; the state is then as it was or as the error says, the same
 * again works once the runtime does, and nothing of the runtime's is left. The kind is the
 * argument.
 */
#include <gpusnap/loader.h>
#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>

#include "kernels/device_ops.h"
#include "tests/fake/fake_control.h"
#include "tests/support/live_state.h"
#include "tests/support/tempdir.h"

#define LEAF GPUSNAP_LEAF_BYTES

static char device_name[32];
static const struct fake_gpu *gpu;
static char scratch[PATH_MAX];

/* The n-th call from now fails; all after it too, if `on`. */
static void arm(uint32_t n, bool on)
{
	const struct fake_knobs knobs = {.fail_in = n, .fail_on = on};

	gpu->set(&knobs);
}

/* The runtime works again. @return whether a call was failed meanwhile */
static bool disarm(void)
{
	bool failed = gpu->counts().failed > 0;

	gpu->set(NULL);
	return failed;
}

static void ck_refused(gpusnap_status status, const gpusnap_error *err, uint32_t n)
{
	ck_assert_msg(status == GPUSNAP_E_DEVICE || status == GPUSNAP_E_NOMEM ||
			      status == GPUSNAP_E_NODEV || status == GPUSNAP_E_CORRUPT,
		"call %u: %s: %s", n, gpusnap_status_name(status), err->message);
	ck_assert_uint_gt(strlen(err->message), 10);
}

static gpusnap_device *open_device(void)
{
	gpusnap_device *device;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(device_name, &device, &err));
	return device;
}

/* An operation on a device that is open, and a state that it works on. */
struct scene {
	gpusnap_device *device;
	struct live_state state;
	char file[PATH_MAX];
};

static struct scene open_scene(void)
{
	struct scene scene = {.device = open_device()};
	uint64_t seed = 12;
	gpusnap_error err;

	live_open(&scene.state, scene.device);
	for (uint32_t i = 0; i < 2; i++) {
		/* The second one is mapped in three slices. */
		uint32_t region = live_region(
			&scene.state, "weights", (i ? 40 : 3) * LEAF, GPUSNAP_POLICY_KEEP, &seed);

		live_buffer(&scene.state, i ? "w2" : "w13", region, 100, 2 * LEAF + 17);
	}
	live_remember(&scene.state);
	tempdir_join(scene.file, scratch, "state.gsnap");
	(void)unlink(scene.file);
	ck_ok(gpusnap_save(scene.state.registry, scene.file, NULL, NULL, &err));
	return scene;
}

static void close_scene(struct scene *scene)
{
	live_close(&scene->state);
	gpusnap_device_close(scene->device);
	ck_nothing_left(gpu);
}

static bool is_offloaded(const struct scene *scene)
{
	gpusnap_region_info info;
	gpusnap_error err;

	ck_ok(gpusnap_region_get(scene->state.registry, 1, &info, &err));
	return info.state == GPUSNAP_REGION_OFFLOADED;
}

/* What an operation makes of failures: ready, run, and what must hold when it was refused. */
struct operation {
	void (*ready)(struct scene *scene);
	gpusnap_status (*run)(struct scene *scene, gpusnap_error *err);
	void (*refused)(struct scene *scene);
};

static gpusnap_status run_offload(struct scene *scene, gpusnap_error *err)
{
	return gpusnap_offload(scene->state.registry, NULL, NULL, err);
}

static gpusnap_status run_resume(struct scene *scene, gpusnap_error *err)
{
	return gpusnap_resume(scene->state.registry, NULL, NULL, err);
}

static gpusnap_status run_save(struct scene *scene, gpusnap_error *err)
{
	char path[PATH_MAX];
	gpusnap_status status;

	tempdir_join(path, scratch, "another.gsnap");
	(void)unlink(path);
	status = gpusnap_save(scene->state.registry, path, NULL, NULL, err);
	ck_assert_int_eq(access(path, F_OK) == 0, status == GPUSNAP_OK);
	return status;
}

static gpusnap_status run_restore(struct scene *scene, gpusnap_error *err)
{
	return gpusnap_restore(scene->state.registry, scene->file, NULL, NULL, err);
}

static void offload_it(struct scene *scene)
{
	gpusnap_error err;

	ck_ok(run_offload(scene, &err));
}

static void scribble(struct scene *scene)
{
	live_scribble(scene->state.registry);
}

static void still_equal(struct scene *scene)
{
	gpusnap_error err;

	/* An undo that fails as well leaves regions offloaded, and says so. */
	if (is_offloaded(scene))
		ck_ok(run_resume(scene, &err));
	ck_assert(live_equals(&scene->state, scene->state.registry));
}

static void comes_back(struct scene *scene)
{
	gpusnap_error err;

	ck_assert(is_offloaded(scene));
	ck_ok(run_resume(scene, &err));
	ck_assert(live_equals(&scene->state, scene->state.registry));
}

static void restores(struct scene *scene)
{
	gpusnap_error err;

	ck_ok(run_restore(scene, &err));
	ck_assert(live_equals(&scene->state, scene->state.registry));
}

static const struct operation operations[] = {
	{NULL, run_offload, still_equal},
	{offload_it, run_resume, comes_back},
	{NULL, run_save, still_equal},
	{scribble, run_restore, restores},
	{offload_it, run_restore, restores},
};

enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* @return whether the operation made so many calls */
static bool fail_call(const struct operation *operation, uint32_t n, bool on)
{
	struct scene scene = open_scene();
	gpusnap_status status;
	gpusnap_error err;
	bool failed;

	if (operation->ready)
		operation->ready(&scene);
	arm(n, on);
	status = operation->run(&scene, &err);
	failed = disarm();
	if (status) {
		ck_refused(status, &err, n);
		operation->refused(&scene);
	} else {
		still_equal(&scene);
	}
	close_scene(&scene);
	return failed;
}

static void fail_every_call(const struct operation *operation)
{
	uint32_t n = 1;

	while (fail_call(operation, n, false) && fail_call(operation, n, true))
		n++;
	(void)printf("%u calls\n", n - 1);
	ck_assert_uint_gt(n, 10);
}

START_TEST(every_failing_call_of_an_offload_is_survived)
{
	fail_every_call(&operations[0]);
}
END_TEST

START_TEST(every_failing_call_of_a_resume_is_survived)
{
	fail_every_call(&operations[1]);
}
END_TEST

START_TEST(every_failing_call_of_a_save_is_survived)
{
	fail_every_call(&operations[2]);
}
END_TEST

START_TEST(every_failing_call_of_a_restore_in_place_is_survived)
{
	fail_every_call(&operations[3]);
}
END_TEST

START_TEST(every_failing_call_of_a_restore_of_offloaded_state_is_survived)
{
	fail_every_call(&operations[4]);
}
END_TEST

START_TEST(every_failing_call_of_opening_a_device_is_survived)
{
	bool more = true;

	for (uint32_t n = 1; more; n++) {
		for (int on = 0; on < 2; on++) {
			gpusnap_device *device = NULL;
			gpusnap_status status;
			gpusnap_error err;

			arm(n, on);
			status = gpusnap_device_open(device_name, &device, &err);
			more = disarm();
			if (status)
				ck_refused(status, &err, n);
			gpusnap_device_close(device);
			ck_nothing_left(gpu);
		}
	}
}
END_TEST

/* The pool of the second thread and up is not made again for each of these. */
START_TEST(every_failing_call_of_a_load_is_survived)
{
	bool more = true;

	for (uint32_t n = 1; more; n++) {
		for (int on = 0; on < 2; on++) {
			gpusnap_device *device = open_device();
			gpusnap_registry *registry;
			gpusnap_loaded loaded;
			gpusnap_status status;
			gpusnap_error err;

			ck_ok(gpusnap_registry_create(device, NULL, &registry, &err));
			arm(n, on);
			status = gpusnap_load(registry, GPUSNAP_TEST_DATA "/checkpoints/mixtral",
				NULL, &loaded, &err);
			more = disarm();
			if (status) {
				ck_refused(status, &err, n);
				ck_assert_uint_eq(gpusnap_region_count(registry), 0);
			} else {
				gpusnap_loaded_release(&loaded);
			}
			gpusnap_registry_free(registry);
			gpusnap_device_close(device);
			ck_nothing_left(gpu);
		}
	}
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		every_failing_call_of_opening_a_device_is_survived,
		every_failing_call_of_an_offload_is_survived,
		every_failing_call_of_a_resume_is_survived,
		every_failing_call_of_a_save_is_survived,
		every_failing_call_of_a_restore_in_place_is_survived,
		every_failing_call_of_a_restore_of_offloaded_state_is_survived,
		every_failing_call_of_a_load_is_survived,
	};
	int status;

	assert(argc == 2);
	(void)snprintf(device_name, sizeof device_name, "%.8s:0", argv[1]);
	gpu = fake_control(argv[1]);
	tempdir_make(scratch, NULL);
	status = RUN_SUITE("runtime_failures", tests);
	tempdir_remove(scratch);
	return status;
}
