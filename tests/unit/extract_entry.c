/* SPDX-License-Identifier: Apache-2.0 */
/* Extracting one entry: what comes out is what went in, and nothing unproved comes out. */
#include <errno.h>
#include <string.h>

#include <gpusnap/safetensors.h>
#include <gpusnap/snapshot.h>

#include "tests/support/file.h"
#include "tests/support/flip.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

enum { BIG_OFFSET = 4096, SHAPE_ROWS = 5, SHAPE_COLUMNS = 7 };
/* Over two windows of 1 MiB, and not a whole number of leaves. */
#define BIG_BYTES (35 * LEAF + 77)

static char folder[PATH_MAX];

/* Region 1 "weights": big, bf16 [5, 7], an empty one, raw bytes around; region 2 is not kept. */
struct saved {
	gpusnap_device *device;
	struct live_state state;
	gpusnap_snapshot *snapshot;
	char path[PATH_MAX];
	char out[PATH_MAX];
};

static void add_shaped(struct saved *saved, uint32_t region)
{
	const uint64_t shape[] = {SHAPE_ROWS, SHAPE_COLUMNS};
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_error err;

	options.name = "layer/0 \"w\"";
	options.dtype = GPUSNAP_BF16;
	options.rank = 2;
	options.shape = shape;
	options.region = region;
	ck_ok(gpusnap_buffer_register(saved->state.registry, &options, &err));
}

static void saved_open(struct saved *saved, const char *name)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_error err;
	uint64_t random = 21;
	uint32_t id;

	options.replace = true;
	tempdir_join(saved->path, folder, name);
	tempdir_join(saved->out, folder, "out");
	ck_ok(gpusnap_device_open("host", &saved->device, &err));
	live_open(&saved->state, saved->device);
	id = live_region(&saved->state, "weights", 40 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	add_shaped(saved, id);
	live_buffer(&saved->state, "big", id, BIG_OFFSET, BIG_BYTES);
	live_buffer(&saved->state, "empty", id, BIG_OFFSET, 0);
	id = live_region(&saved->state, "cache", LEAF, GPUSNAP_POLICY_ZERO, &random);
	live_buffer(&saved->state, "dropped", id, 0, 100);
	ck_ok(gpusnap_save(saved->state.registry, saved->path, &options, NULL, &err));
	ck_ok(gpusnap_snapshot_open(saved->path, &saved->snapshot, &err));
}

static void saved_close(struct saved *saved)
{
	gpusnap_snapshot_close(saved->snapshot);
	live_close(&saved->state);
	gpusnap_device_close(saved->device);
	(void)unlink(saved->path);
	(void)unlink(saved->out);
}

static gpusnap_extract_options options_of(bool raw, uint64_t block_bytes)
{
	gpusnap_extract_options options = GPUSNAP_EXTRACT_OPTIONS_INIT;

	options.raw = raw;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = block_bytes;
	return options;
}

static void check_bytes(const struct saved *saved, const uint8_t *bytes, size_t length,
	uint64_t offset, uint64_t expected)
{
	ck_assert_uint_eq(length, expected);
	ck_assert_int_eq(
		memcmp(bytes, live_bytes(saved->state.registry, 0) + offset, (size_t)expected), 0);
}

START_TEST(raw_bytes_are_the_buffers_whatever_the_block_size)
{
	static const uint64_t blocks[] = {64 << 10, 192 << 10, 4 << 20};
	struct saved saved;
	gpusnap_extract_report report;
	gpusnap_error err;

	saved_open(&saved, "raw.gsnap");
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
		gpusnap_extract_options options = options_of(true, blocks[i]);
		uint8_t *bytes;
		size_t length;

		options.replace = i > 0;
		ck_ok(gpusnap_snapshot_extract(
			saved.snapshot, "big", saved.out, &options, &report, &err));
		bytes = read_file(saved.out, &length);
		check_bytes(&saved, bytes, length, BIG_OFFSET, BIG_BYTES);
		free(bytes);
		ck_assert_uint_eq(report.file_bytes, BIG_BYTES);
		ck_assert_uint_eq(report.io.bytes, BIG_BYTES);
	}
	saved_close(&saved);
}
END_TEST

/* Extract and parse; the data begins at the answer. */
static uint64_t extract_tensor(const struct saved *saved, const char *name, uint8_t **ret_bytes,
	gpusnap_header **ret_header)
{
	gpusnap_extract_options options = options_of(false, 0);
	gpusnap_extract_report report;
	uint64_t json_bytes;
	gpusnap_error err;
	size_t length;

	options.replace = true;
	ck_ok(gpusnap_snapshot_extract(saved->snapshot, name, saved->out, &options, &report, &err));
	*ret_bytes = read_file(saved->out, &length);
	ck_assert_uint_eq(report.file_bytes, length);
	ck_ok(gpusnap_header_measure(*ret_bytes, length, length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse(
		(const char *)*ret_bytes + 8, json_bytes, length, ret_header, &err));
	ck_assert_uint_eq(gpusnap_header_tensor_count(*ret_header), 1);
	ck_assert_str_eq(gpusnap_header_tensor(*ret_header, 0)->name, name);
	return gpusnap_header_data_offset(*ret_header);
}

START_TEST(a_safetensors_file_has_the_buffers_name_type_shape_and_bytes)
{
	static const char raw_name[] = "gpusnap.raw/1/70";
	const gpusnap_tensor *tensor;
	struct saved saved;
	gpusnap_header *header;
	uint8_t *bytes;
	uint64_t at;

	saved_open(&saved, "tensor.gsnap");
	at = extract_tensor(&saved, "layer/0 \"w\"", &bytes, &header);
	tensor = gpusnap_header_tensor(header, 0);
	ck_assert_int_eq(tensor->dtype, GPUSNAP_BF16);
	ck_assert_uint_eq(tensor->rank, 2);
	ck_assert_uint_eq(tensor->shape[0], SHAPE_ROWS);
	ck_assert_uint_eq(tensor->shape[1], SHAPE_COLUMNS);
	ck_assert_uint_eq(at % 8, 0);
	check_bytes(&saved, bytes + at, tensor->end, 0, UINT64_C(2) * SHAPE_ROWS * SHAPE_COLUMNS);
	gpusnap_header_free(header);
	free(bytes);
	at = extract_tensor(&saved, raw_name, &bytes, &header);
	check_bytes(&saved, bytes + at, gpusnap_header_tensor(header, 0)->end, 70, BIG_OFFSET - 70);
	gpusnap_header_free(header);
	free(bytes);
	(void)extract_tensor(&saved, "empty", &bytes, &header);
	ck_assert_uint_eq(gpusnap_header_tensor(header, 0)->end, 0);
	gpusnap_header_free(header);
	free(bytes);
	saved_close(&saved);
}
END_TEST

START_TEST(each_damaged_leaf_is_named_and_the_target_stays)
{
	gpusnap_extract_options options = options_of(true, 64 << 10);
	const gpusnap_snapshot_entry *entry;
	struct saved saved;
	gpusnap_error err;
	char text[64];

	saved_open(&saved, "damaged.gsnap");
	options.replace = true;
	file_write(saved.out, "old", 3);
	entry = gpusnap_snapshot_entry_find(saved.snapshot, "big");
	for (uint64_t leaf = 0; leaf < entry->leaf_count; leaf++) {
		uint64_t begin = entry->file_offset + leaf * LEAF;
		size_t length;
		uint8_t *bytes;

		flip_bit_of(saved.path, begin + leaf % 77, (unsigned)(leaf % 8));
		(void)snprintf(text, sizeof text, "buffer 'big', leaf %llu (file offset %llu)",
			(unsigned long long)leaf, (unsigned long long)begin);
		ck_fails(gpusnap_snapshot_extract(
				 saved.snapshot, "big", saved.out, &options, NULL, &err),
			GPUSNAP_E_CORRUPT, text);
		ck_assert_uint_eq(err.offset, begin);
		flip_bit_of(saved.path, begin + leaf % 77, (unsigned)(leaf % 8));
		bytes = read_file(saved.out, &length);
		ck_assert_uint_eq(length, 3);
		free(bytes);
	}
	ck_assert_int_eq(tempdir_count(folder), 2);
	ck_ok(gpusnap_snapshot_extract(saved.snapshot, "big", saved.out, &options, NULL, &err));
	saved_close(&saved);
}
END_TEST

START_TEST(a_descriptor_gets_proved_bytes_only)
{
	gpusnap_extract_options options = options_of(true, 64 << 10);
	const gpusnap_snapshot_entry *entry;
	struct saved saved;
	gpusnap_error err;
	uint8_t *bytes;
	size_t length;
	int fd;

	saved_open(&saved, "descriptor.gsnap");
	entry = gpusnap_snapshot_entry_find(saved.snapshot, "big");
	flip_bit_of(saved.path, entry->file_offset + 20 * LEAF, 3);
	fd = open(saved.out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, "ahead", 5), 5);
	ck_fails(gpusnap_snapshot_extract_fd(saved.snapshot, "big", fd, &options, NULL, &err),
		GPUSNAP_E_CORRUPT, "leaf 20 ");
	ck_assert_int_eq(close(fd), 0);
	bytes = read_file(saved.out, &length);
	ck_assert_uint_ge(length, 5);
	check_bytes(&saved, bytes + 5, length - 5, BIG_OFFSET, 16 * LEAF);
	free(bytes);
	saved_close(&saved);
}
END_TEST

START_TEST(a_full_device_is_an_error)
{
	gpusnap_extract_options options = options_of(false, 0);
	struct saved saved;
	gpusnap_error err;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	saved_open(&saved, "full.gsnap");
	ck_fails(gpusnap_snapshot_extract_fd(saved.snapshot, "big", fd, &options, NULL, &err),
		GPUSNAP_E_IO, "write");
	ck_assert_int_eq(err.os_errno, ENOSPC);
	ck_assert_int_eq(close(fd), 0);
	saved_close(&saved);
}
END_TEST

START_TEST(names_without_bytes_are_refused_with_the_reason)
{
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;
	const uint64_t shape = 16;
	const int64_t stride = 2;
	struct saved saved;
	gpusnap_error err;

	saved_open(&saved, "names.gsnap");
	view.name = "alias";
	view.buffer = "big";
	view.dtype = GPUSNAP_U8;
	view.rank = 1;
	view.shape = &shape;
	view.strides = &stride;
	ck_ok(gpusnap_view_register(saved.state.registry, &view, &err));
	gpusnap_snapshot_close(saved.snapshot);
	ck_assert_int_eq(unlink(saved.path), 0);
	ck_ok(gpusnap_save(saved.state.registry, saved.path, NULL, NULL, &err));
	ck_ok(gpusnap_snapshot_open(saved.path, &saved.snapshot, &err));
	ck_fails(gpusnap_snapshot_extract(saved.snapshot, "bog", saved.out, NULL, NULL, &err),
		GPUSNAP_E_INVALID, "no buffer or raw range 'bog'");
	ck_fails(gpusnap_snapshot_extract(saved.snapshot, "alias", saved.out, NULL, NULL, &err),
		GPUSNAP_E_INVALID, "'alias' is a view of buffer 'big'");
	ck_fails(gpusnap_snapshot_extract(saved.snapshot, "dropped", saved.out, NULL, NULL, &err),
		GPUSNAP_E_INVALID, "bytes of buffer 'dropped' were not saved");
	ck_fails(gpusnap_snapshot_extract(
			 saved.snapshot, "gpusnap.leaves", saved.out, NULL, NULL, &err),
		GPUSNAP_E_INVALID, "gpusnap.leaves");
	ck_assert_int_eq(access(saved.out, F_OK), -1);
	saved_close(&saved);
}
END_TEST

START_TEST(an_existing_file_stays_without_replace)
{
	struct saved saved;
	gpusnap_error err;

	saved_open(&saved, "exists.gsnap");
	file_write(saved.out, "old", 3);
	ck_fails(gpusnap_snapshot_extract(saved.snapshot, "big", saved.out, NULL, NULL, &err),
		GPUSNAP_E_IO, "exists");
	saved_close(&saved);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		raw_bytes_are_the_buffers_whatever_the_block_size,
		a_safetensors_file_has_the_buffers_name_type_shape_and_bytes,
		each_damaged_leaf_is_named_and_the_target_stays,
		a_descriptor_gets_proved_bytes_only,
		a_full_device_is_an_error,
		names_without_bytes_are_refused_with_the_reason,
		an_existing_file_stays_without_replace,
	};
	int status;

	tempdir_make(folder, NULL);
	status = RUN_SUITE("extract_entry", tests);
	tempdir_remove(folder);
	return status;
}
