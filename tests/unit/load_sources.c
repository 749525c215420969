/* SPDX-License-Identifier: Apache-2.0 */
/* Where a checkpoint may come from, and what is said when it changes under the load. */
#include <gpusnap/loader.h>
#include <gpusnap/snapshot.h>

#include "loader/source_path.h"
#include "tests/support/checkpoint_copy.h"

static char scratch[PATH_MAX];

#define SHARDED	 GPUSNAP_TEST_DATA "/checkpoints/mixtral"
#define REVISION "0123456789abcdef0123456789abcdef01234567"

struct loaded {
	gpusnap_device *device;
	gpusnap_registry *registry;
	gpusnap_loaded loaded;
};

static void open_state(struct loaded *state)
{
	gpusnap_error err;

	memset(state, 0, sizeof *state);
	ck_ok(gpusnap_device_open("host", &state->device, &err));
	ck_ok(gpusnap_registry_create(state->device, NULL, &state->registry, &err));
}

static void close_state(struct loaded *state)
{
	gpusnap_loaded_release(&state->loaded);
	gpusnap_registry_free(state->registry);
	gpusnap_device_close(state->device);
}

static void load_state(struct loaded *state, const char *path)
{
	gpusnap_error err;

	open_state(state);
	ck_ok(gpusnap_load(state->registry, path, NULL, &state->loaded, &err));
}

static void refuse(const char *path, gpusnap_status expected, const char *text)
{
	struct loaded state;
	gpusnap_error err;

	open_state(&state);
	ck_fails(gpusnap_load(state.registry, path, NULL, &state.loaded, &err), expected, text);
	ck_assert_uint_eq(gpusnap_region_count(state.registry), 0);
	close_state(&state);
}

static void make_folder(char path[PATH_MAX], const char *parent, const char *name)
{
	tempdir_join(path, parent, name);
	assert(mkdir(path, 0755) == 0);
}

/* ---- a Hugging Face cache ---- */

/* models--x/{blobs/HASH, snapshots/REVISION/NAME -> ../../blobs/HASH, refs/main}. */
static void make_cache(char folder[PATH_MAX], const char *ref)
{
	char blobs[PATH_MAX], snapshots[PATH_MAX], revision[PATH_MAX], refs[PATH_MAX];
	char from[PATH_MAX], to[PATH_MAX], link[PATH_MAX];
	DIR *stream = opendir(SHARDED);
	struct dirent *entry;
	unsigned hash = 0;

	assert(stream);
	tempdir_make(folder, scratch);
	make_folder(blobs, folder, "blobs");
	make_folder(snapshots, folder, "snapshots");
	make_folder(revision, snapshots, REVISION);
	make_folder(refs, folder, "refs");
	tempdir_join(to, refs, "main");
	file_write(to, ref, strlen(ref));
	while ((entry = readdir(stream))) {
		char name[16], target[64];

		if (strncmp(entry->d_name, "model", 5) != 0 &&
			strcmp(entry->d_name, "config.json") != 0)
			continue;
		(void)snprintf(name, sizeof name, "%08x", ++hash);
		(void)snprintf(target, sizeof target, "../../blobs/%s", name);
		tempdir_join(from, SHARDED, entry->d_name);
		tempdir_join(to, blobs, name);
		copy_file(from, to);
		tempdir_join(link, revision, entry->d_name);
		assert(symlink(target, link) == 0);
	}
	(void)closedir(stream);
}

static void remove_cache(const char *folder)
{
	char path[PATH_MAX];

	tempdir_join(path, folder, "snapshots/" REVISION);
	tempdir_remove(path);
	tempdir_remove(folder);
}

static void check_same(const struct loaded *a, const struct loaded *b)
{
	ck_assert_uint_eq(gpusnap_buffer_count(a->registry), gpusnap_buffer_count(b->registry));
	for (size_t i = 0; i < gpusnap_buffer_count(a->registry); i++) {
		gpusnap_buffer_info info;
		gpusnap_error err;
		uint8_t *mine, *theirs;

		ck_ok(gpusnap_buffer_at(a->registry, i, &info, &err));
		mine = calloc(info.bytes + 1, 1);
		theirs = calloc(info.bytes + 1, 1);
		assert(mine && theirs);
		ck_ok(gpusnap_buffer_read(a->registry, info.name, 0, mine, info.bytes, &err));
		ck_ok(gpusnap_buffer_read(b->registry, info.name, 0, theirs, info.bytes, &err));
		ck_assert_mem_eq(mine, theirs, info.bytes);
		free(mine);
		free(theirs);
	}
}

START_TEST(a_cache_is_loaded_by_its_folder_and_by_its_snapshot)
{
	char folder[PATH_MAX], snapshot[PATH_MAX];
	struct loaded plain, cached, direct;

	make_cache(folder, REVISION "\n");
	tempdir_join(snapshot, folder, "snapshots/" REVISION);
	load_state(&plain, SHARDED);
	load_state(&cached, folder);
	load_state(&direct, snapshot);
	check_same(&plain, &cached);
	check_same(&plain, &direct);
	close_state(&plain);
	close_state(&cached);
	close_state(&direct);
	remove_cache(folder);
}
END_TEST

START_TEST(a_cache_without_its_snapshot_is_refused_by_name)
{
	static const char *const refs[] = {"", "..", "../../etc", "a/b", ".hidden"};
	char folder[PATH_MAX], blob[PATH_MAX];

	for (size_t i = 0; i < sizeof refs / sizeof refs[0]; i++) {
		make_cache(folder, refs[i]);
		refuse(folder, GPUSNAP_E_FORMAT,
			"which is no revision; give a folder of snapshots/");
		remove_cache(folder);
	}
	make_cache(folder, "fedcba9876543210");
	refuse(folder, GPUSNAP_E_IO, "snapshots/fedcba9876543210: No such file or directory");
	remove_cache(folder);
	/* Only the snapshots were copied: the links lead nowhere. */
	make_cache(folder, REVISION);
	tempdir_join(blob, folder, "blobs");
	tempdir_remove(blob);
	refuse(folder, GPUSNAP_E_IO, "No such file or directory");
	remove_cache(folder);
}
END_TEST

/* ---- single files ---- */

/* A file of one F32 tensor [2, 3] under a name that is no checkpoint's. */
static void write_single(const char *path)
{
	static const uint64_t shape[] = {2, 3};
	static const float values[6] = {1, 2, 3, 4, 5, 6};
	const gpusnap_tensor tensor = {"alone", 5, GPUSNAP_F32, 2, shape, 0, sizeof values};
	uint64_t length;
	uint8_t *header;
	uint8_t file[512];
	gpusnap_error err;

	ck_ok(gpusnap_header_build(&tensor, 1, NULL, 0, 8, &header, &length, &err));
	assert(length + sizeof values <= sizeof file);
	memcpy(file, header, length);
	memcpy(file + length, values, sizeof values);
	file_write(path, file, length + sizeof values);
	gpusnap_header_bytes_free(header);
}

START_TEST(a_file_without_config_is_what_its_tensors_are)
{
	static const float expected[6] = {1, 2, 3, 4, 5, 6};
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_registry_options registry = GPUSNAP_REGISTRY_OPTIONS_INIT;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_buffer_info info;
	struct loaded state;
	float values[6];
	gpusnap_error err;

	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "any.safetensors");
	write_single(path);
	load_state(&state, path);
	ck_assert_uint_eq(gpusnap_buffer_count(state.registry), 1);
	ck_ok(gpusnap_buffer_find(state.registry, "alone", &info, &err));
	ck_assert_int_eq(info.dtype, GPUSNAP_F32);
	ck_ok(gpusnap_buffer_read(state.registry, "alone", 0, values, sizeof values, &err));
	ck_assert_mem_eq(values, expected, sizeof values);
	ck_assert_ptr_nonnull(strstr(state.loaded.report.note, "family is unknown"));
	close_state(&state);
	/* Nothing says how it would be cut. */
	options.tp_size = registry.tp_size = 2;
	open_state(&state);
	gpusnap_registry_free(state.registry);
	ck_ok(gpusnap_registry_create(state.device, &registry, &state.registry, &err));
	ck_fails(gpusnap_load(state.registry, path, &options, &state.loaded, &err),
		GPUSNAP_E_UNSUPPORTED, "no config.json");
	close_state(&state);
	tempdir_remove(folder);
}
END_TEST

START_TEST(a_file_beside_its_config_is_the_model)
{
	struct test_checkpoint *checkpoint = test_checkpoint_read(SHARDED);
	char folder[PATH_MAX], from[PATH_MAX], path[PATH_MAX];
	struct loaded plain, single;

	tempdir_make(folder, scratch);
	test_checkpoint_write(checkpoint, folder, "whole.safetensors");
	tempdir_join(from, SHARDED, "config.json");
	tempdir_join(path, folder, "config.json");
	copy_file(from, path);
	tempdir_join(path, folder, "whole.safetensors");
	load_state(&plain, SHARDED);
	load_state(&single, path);
	check_same(&plain, &single);
	ck_assert_uint_gt(single.loaded.model->layer_count, 0);
	close_state(&plain);
	close_state(&single);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

START_TEST(a_relative_name_means_the_current_folder)
{
	char folder[PATH_MAX], path[PATH_MAX], before[PATH_MAX];
	struct loaded state;

	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "any.safetensors");
	write_single(path);
	assert(getcwd(before, sizeof before) && chdir(folder) == 0);
	load_state(&state, "any.safetensors");
	ck_assert_uint_eq(gpusnap_buffer_count(state.registry), 1);
	close_state(&state);
	assert(chdir(before) == 0);
	tempdir_remove(folder);
}
END_TEST

START_TEST(what_is_no_checkpoint_is_named)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct loaded state;
	gpusnap_save_report saved;
	gpusnap_error err;

	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "absent");
	refuse(path, GPUSNAP_E_IO, "absent: No such file or directory");
	refuse(folder, GPUSNAP_E_IO, "config.json: No such file or directory");
	tempdir_join(path, folder, "text");
	file_write(path, "{\"a\": 1}", 8);
	refuse(path, GPUSNAP_E_FORMAT, "a JSON text; give the safetensors file");
	tempdir_join(path, folder, "fifo");
	assert(mkfifo(path, 0600) == 0);
	refuse(path, GPUSNAP_E_IO, "is not a regular file");
	/* A snapshot has digests and a plan of its own, which a load would pass over. */
	load_state(&state, SHARDED);
	tempdir_join(path, folder, "state.gsnap");
	ck_ok(gpusnap_save(state.registry, path, NULL, &saved, &err));
	close_state(&state);
	refuse(path, GPUSNAP_E_INVALID, "is a snapshot, not a checkpoint");
	tempdir_remove(folder);
}
END_TEST

/* ---- files that change under the load ---- */

enum change { TRUNCATE, REPLACE, REMOVE, TOUCH, CANCEL };

struct meddling {
	char folder[PATH_MAX];
	enum change what;
};

/* The first progress call comes after the bytes have been read. */
static int meddle(void *user, uint64_t done, uint64_t total)
{
	const struct meddling *m = user;
	const struct timespec times[2] = {{1, 0}, {1, 0}};
	char path[PATH_MAX], other[PATH_MAX];

	ck_assert_uint_le(done, total);
	tempdir_join(path, m->folder, "model-00002-of-00003.safetensors");
	tempdir_join(other, m->folder, "model-00003-of-00003.safetensors");
	switch (m->what) {
	case TRUNCATE:
		assert(truncate(path, 1000) == 0);
		return 0;
	case REPLACE:
		assert(rename(other, path) == 0);
		return 0;
	case REMOVE:
		assert(unlink(path) == 0);
		return 0;
	case TOUCH:
		assert(utimensat(AT_FDCWD, path, times, 0) == 0);
		return 0;
	default:
		return 1;
	}
}

static void check_meddling(enum change what, gpusnap_io_engine engine, const char *text)
{
	struct meddling meddling = {.what = what};
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	struct loaded state;
	gpusnap_status st;
	gpusnap_error err;

	tempdir_make(meddling.folder, scratch);
	copy_checkpoint(SHARDED, meddling.folder);
	options.io.struct_size = sizeof options.io;
	options.io.engine = engine;
	options.io.progress = meddle;
	options.io.user = &meddling;
	open_state(&state);
	st = gpusnap_load(state.registry, meddling.folder, &options, &state.loaded, &err);
	if (st != GPUSNAP_E_UNSUPPORTED) /* this machine lacks the engine, or O_DIRECT */
		ck_fails(st, GPUSNAP_E_IO, text);
	ck_assert_uint_eq(gpusnap_region_count(state.registry), 0);
	ck_assert_uint_eq(gpusnap_buffer_count(state.registry), 0);
	close_state(&state);
	tempdir_remove(meddling.folder);
}

START_TEST(a_shard_that_changes_during_the_load_is_an_error)
{
	for (int i = GPUSNAP_IO_AUTO; i <= GPUSNAP_IO_MMAP; i++) {
		gpusnap_io_engine engine = (gpusnap_io_engine)i;

		check_meddling(TRUNCATE, engine, "has 1000 bytes now");
		check_meddling(REPLACE, engine, "was replaced by another file");
		check_meddling(REMOVE, engine, "vanished");
		check_meddling(TOUCH, engine, "was written to");
		check_meddling(CANCEL, engine, "cancelled");
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_cache_is_loaded_by_its_folder_and_by_its_snapshot,
		a_cache_without_its_snapshot_is_refused_by_name,
		a_file_without_config_is_what_its_tensors_are,
		a_file_beside_its_config_is_the_model,
		a_relative_name_means_the_current_folder,
		what_is_no_checkpoint_is_named,
		a_shard_that_changes_during_the_load_is_an_error,
	};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("load_sources", tests);
	tempdir_remove(scratch);
	return result;
}
