/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first failure that the project is built on (DESIGN 1): a mask that nobody saved. The mask is
 * a plain attribute inside managed memory, save-and-restore goes by names, and after a resume the
 * model answers nonsense while every weight is intact.
 */
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { TOKENS = 8 };

static char root[PATH_MAX];

struct scene {
	struct moe_state state;
	gpusnap_probe *probe;
	float *x;
	float *before;
	uint64_t local; /* pairs that the rank served before */
	size_t values;
};

static uint64_t decode(const struct scene *scene, float *out)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	gpusnap_error err;

	io.tokens = TOKENS;
	io.x = scene->x;
	io.out = out;
	ck_ok(gpusnap_decode_layer(scene->state.dispatch, 0, &io, &err));
	ck_assert_uint_eq(io.local_assignments + io.remote_assignments,
		(uint64_t)TOKENS * scene->state.model->layers[0].top_k);
	return io.local_assignments;
}

/* An engine's rank 1 of 2, with masks that nobody names; it decodes, and is proved. */
static void set(struct scene *scene, bool forget_unclaimed)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_baseline *baseline;
	gpusnap_error err;

	options.ep_rank = 1;
	options.ep_size = 2;
	options.unregistered_masks = true;
	options.forget_unclaimed = forget_unclaimed;
	moe_state_load(&scene->state, "qwen3_moe_fp8", &options);
	scene->values = (size_t)TOKENS * scene->state.model->layers[0].hidden;
	scene->x = moe_inputs(34220, scene->values);
	scene->before = gsn_alloc(scene->values, sizeof *scene->before);
	ck_assert_ptr_nonnull(scene->before);
	scene->local = decode(scene, scene->before);
	ck_assert_uint_gt(scene->local, 0);
	ck_ok(gpusnap_probe_record(scene->state.dispatch, NULL, &scene->probe, &err));
	ck_ok(gpusnap_baseline_from_live(scene->state.registry, &baseline, &err));
	gpusnap_registry_set_baseline(scene->state.registry, baseline);
}

static void clear(struct scene *scene)
{
	gpusnap_probe_free(scene->probe);
	moe_state_free(&scene->state);
	gsn_free(scene->x);
	gsn_free(scene->before);
}

static void check_weights_intact(const struct moe_state *state)
{
	gpusnap_damage damage;
	gpusnap_error err;

	ck_ok(gpusnap_verify(state->registry, NULL, &damage, &err));
	ck_assert_msg(damage.count == 0, "%s", damage.count ? damage.items[0].buffer : "");
	gpusnap_damage_release(&damage);
}

START_TEST(a_forgotten_mask_makes_decode_silently_wrong_and_validate_names_it)
{
	struct scene scene;
	gpusnap_validation got;
	float *after;
	gpusnap_error err;

	set(&scene, true);
	after = gsn_alloc(scene.values, sizeof *after);
	ck_assert_ptr_nonnull(after);
	moe_offload(&scene.state);
	moe_resume(&scene.state);
	/* No error: every pair is somebody else's, and the output is zero. */
	ck_assert_uint_eq(decode(&scene, after), 0);
	ck_assert_mem_ne(after, scene.before, scene.values * sizeof *after);
	for (size_t i = 0; i < scene.values; i++)
		ck_assert(after[i] == 0.0f);
	check_weights_intact(&scene.state);
	ck_ok(gpusnap_validate(scene.state.dispatch, scene.probe, NULL, &got, &err));
	ck_assert(!got.proved && got.decode_differs);
	ck_assert_uint_eq(got.failure_count, scene.state.model->layer_count);
	for (uint32_t i = 0; i < scene.state.model->layer_count; i++) {
		const gpusnap_failure *failure = &got.failures[i];

		ck_assert_int_eq(failure->kind, GPUSNAP_FAILURE_STRUCTURE);
		ck_assert_uint_eq(failure->layer, i);
		ck_assert_str_eq(
			failure->buffer, scene.state.model->layers[i].buffers[GPUSNAP_MOE_MASK]);
		ck_assert_int_eq(failure->expert, -1);
	}
	gpusnap_validation_release(&got);
	gsn_free(after);
	clear(&scene);
}
END_TEST

START_TEST(by_default_the_mask_is_saved_although_nobody_registered_it)
{
	struct scene scene;
	gpusnap_validation got;
	float *after;
	gpusnap_error err;

	set(&scene, false);
	after = gsn_alloc(scene.values, sizeof *after);
	ck_assert_ptr_nonnull(after);
	moe_offload(&scene.state);
	moe_resume(&scene.state);
	ck_assert_uint_eq(decode(&scene, after), scene.local);
	ck_assert_mem_eq(after, scene.before, scene.values * sizeof *after);
	ck_ok(gpusnap_validate(scene.state.dispatch, scene.probe, NULL, &got, &err));
	ck_assert_msg(got.proved, "%s", got.failure_count ? got.failures[0].detail : "");
	ck_assert(!got.decode_differs);
	gpusnap_validation_release(&got);
	gsn_free(after);
	clear(&scene);
}
END_TEST

/* What the third failure asks for, made safe: cached, and yet not lost. */
START_TEST(a_mask_that_the_dispatcher_owns_survives_being_forgotten)
{
	struct scene scene;
	gpusnap_validation got;
	float *after;
	gpusnap_error err;

	set(&scene, true);
	after = gsn_alloc(scene.values, sizeof *after);
	ck_assert_ptr_nonnull(after);
	for (uint32_t i = 0; i < scene.state.model->layer_count; i++)
		ck_ok(gpusnap_dispatch_build_mask(scene.state.dispatch, i, &err));
	moe_offload(&scene.state);
	moe_resume(&scene.state);
	ck_ok(gpusnap_validate(scene.state.dispatch, scene.probe, NULL, &got, &err));
	ck_assert_msg(got.proved, "%s", got.failure_count ? got.failures[0].detail : "");
	gpusnap_validation_release(&got);
	ck_assert_uint_eq(decode(&scene, after), scene.local);
	ck_assert_mem_eq(after, scene.before, scene.values * sizeof *after);
	gsn_free(after);
	clear(&scene);
}
END_TEST

/* In a fresh process the mask still has no name; where it is, the program knows. */
static void bind_again(const struct moe_state *old, struct moe_state *fresh)
{
	gpusnap_json *model = gpusnap_record_get(fresh->registry, "model");
	gpusnap_error err;

	ck_ok(gpusnap_moe_model_decode(model, &fresh->model, &err));
	gpusnap_json_free(model);
	ck_ok(gpusnap_dispatch_create(fresh->registry, fresh->model, &fresh->dispatch, &err));
	fresh->unregistered = true;
	fresh->mask_region = old->mask_region;
	memcpy(fresh->mask_offsets, old->mask_offsets, sizeof fresh->mask_offsets);
	moe_state_bind_masks(fresh);
}

static void check_fresh_process(const char *path, const struct moe_state *old, bool proved)
{
	struct moe_state fresh = {0};
	gpusnap_restore_report report;
	gpusnap_validation got;
	gpusnap_probe *probe;
	gpusnap_json *json;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(test_device(), &fresh.device, &err));
	ck_ok(gpusnap_registry_from_snapshot(
		fresh.device, path, NULL, NULL, &fresh.registry, &report, &err));
	bind_again(old, &fresh);
	json = gpusnap_baseline_record(gpusnap_registry_baseline(fresh.registry), "probe");
	ck_ok(gpusnap_probe_decode(json, &probe, &err));
	gpusnap_json_free(json);
	ck_ok(gpusnap_validate(fresh.dispatch, probe, NULL, &got, &err));
	ck_assert_msg(got.proved == proved, "%s", got.failure_count ? got.failures[0].detail : "");
	ck_assert_uint_eq(got.failure_count, proved ? 0 : fresh.model->layer_count);
	gpusnap_validation_release(&got);
	gpusnap_probe_free(probe);
	moe_state_free(&fresh);
}

static void save_and_look(const char *name, bool forget_unclaimed, bool proved)
{
	struct scene scene;
	gpusnap_save_report report;
	gpusnap_json *json;
	char path[PATH_MAX];
	gpusnap_error err;

	set(&scene, forget_unclaimed);
	tempdir_join(path, root, name);
	json = gpusnap_probe_encode(scene.probe);
	ck_ok(gpusnap_record_set(scene.state.registry, "probe", json, &err));
	gpusnap_json_free(json);
	ck_ok(gpusnap_save(scene.state.registry, path, NULL, &report, &err));
	check_fresh_process(path, &scene.state, proved);
	clear(&scene);
}

START_TEST(a_snapshot_carries_the_mask_that_nobody_named)
{
	save_and_look("kept.gsnap", false, true);
	save_and_look("forgotten.gsnap", true, false);
}
END_TEST

int main(void)
{
	int status;
	const TTest *const tests[] = {
		a_forgotten_mask_makes_decode_silently_wrong_and_validate_names_it,
		by_default_the_mask_is_saved_although_nobody_registered_it,
		a_mask_that_the_dispatcher_owns_survives_being_forgotten,
		a_snapshot_carries_the_mask_that_nobody_named,
	};

	tempdir_make(root, NULL);
	status = RUN_SUITE("failure_one", tests);
	tempdir_remove(root);
	return status;
}
