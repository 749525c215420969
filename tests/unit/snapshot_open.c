/* SPDX-License-Identifier: Apache-2.0 */
/* What opening a snapshot accepts and, above all, refuses. */
#include <errno.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/file.h"
#include "tests/support/flip.h"
#include "tests/support/live_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

/* Sanitizers make an open tens of times slower; a prime step still meets every byte and bit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { BIT_STEP = 23, LENGTH_STEP = 29 };
#else
enum { BIT_STEP = 1, LENGTH_STEP = 1 };
#endif

static char folder[PATH_MAX];

/* A small snapshot on tmpfs: one region of 2 leaves and a bit, a buffer, an empty one, raw bytes.
 */
struct sample {
	char path[PATH_MAX];
	uint64_t file_bytes, header_bytes, leaves_offset;
};

static void make_sample(struct sample *sample, const char *name, uint64_t seed)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_save_report report;
	gpusnap_snapshot *snapshot;
	gpusnap_device *device;
	struct live_state state;
	gpusnap_error err;
	uint32_t id;

	tempdir_join(sample->path, folder, name);
	options.replace = true;
	ck_ok(gpusnap_device_open("host", &device, &err));
	live_open(&state, device);
	id = live_region(&state, "weights", 2 * LEAF + 4096, GPUSNAP_POLICY_KEEP, &seed);
	live_buffer(&state, "w", id, 0, LEAF + 100);
	live_buffer(&state, "nothing", id, LEAF + 100, 0);
	ck_ok(gpusnap_save(state.registry, sample->path, &options, &report, &err));
	ck_ok(gpusnap_snapshot_open(sample->path, &snapshot, &err));
	sample->file_bytes = report.io.bytes;
	sample->header_bytes = gpusnap_snapshot_seal(snapshot)->header_bytes;
	sample->leaves_offset = sample->file_bytes - GPUSNAP_SEAL_BYTES -
				gpusnap_snapshot_seal(snapshot)->leaf_count * GPUSNAP_DIGEST_BYTES;
	gpusnap_snapshot_close(snapshot);
	live_close(&state);
	gpusnap_device_close(device);
}

static gpusnap_status try_open(const char *path, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_status status = gpusnap_snapshot_open(path, &snapshot, err);

	gpusnap_snapshot_close(snapshot);
	return status;
}

START_TEST(entries_are_what_was_saved)
{
	const gpusnap_snapshot_entry *entry;
	gpusnap_snapshot *snapshot;
	struct sample sample;
	gpusnap_error err;

	make_sample(&sample, "entries.gsnap", 1);
	ck_ok(gpusnap_snapshot_open(sample.path, &snapshot, &err));
	ck_assert_str_eq(gpusnap_snapshot_path(snapshot), sample.path);
	ck_assert_uint_eq(gpusnap_snapshot_entry_count(snapshot), 3);
	entry = gpusnap_snapshot_entry_find(snapshot, "w");
	ck_assert_uint_eq(entry->bytes, LEAF + 100);
	ck_assert_uint_eq(entry->leaf_count, 2);
	ck_assert_int_eq(entry->dtype, GPUSNAP_U8);
	ck_assert_uint_eq(entry->shape[0], LEAF + 100);
	ck_assert(gpusnap_digest_equal(
		entry->digest, gpusnap_digest_of_buffer(entry->bytes,
				       gpusnap_snapshot_leaves(snapshot) + entry->first_leaf)));
	entry = gpusnap_snapshot_entry_find(snapshot, "nothing");
	ck_assert_uint_eq(entry->bytes, 0);
	ck_assert_uint_eq(entry->leaf_count, 0);
	ck_assert_ptr_nonnull(gpusnap_snapshot_entry_find(snapshot, "gpusnap.raw/1/65636"));
	ck_assert_ptr_null(gpusnap_snapshot_entry_find(snapshot, "gpusnap.leaves"));
	ck_assert_ptr_null(gpusnap_snapshot_entry_find(snapshot, "v"));
	ck_assert_ptr_null(gpusnap_snapshot_entry_at(snapshot, 3));
	ck_assert_uint_eq(gpusnap_snapshot_plan(snapshot)->region_count, 1);
	gpusnap_snapshot_close(snapshot);
}
END_TEST

static void flip_all(const struct sample *sample, uint64_t begin, uint64_t end)
{
	int fd = open(sample->path, O_RDWR | O_CLOEXEC);
	gpusnap_error err;
	unsigned flips = 0;

	ck_assert_int_ge(fd, 0);
	for (uint64_t bit = 8 * begin; bit < 8 * end; bit += BIT_STEP, flips++) {
		gpusnap_status status;

		flip_bit(fd, bit / 8, bit % 8);
		status = try_open(sample->path, &err);
		ck_assert_msg(status != GPUSNAP_OK, "bit %u of byte %llu", (unsigned)(bit % 8),
			(unsigned long long)(bit / 8));
		ck_assert_int_eq(status, err.status);
		ck_assert_ptr_nonnull(strstr(err.message, sample->path));
		flip_bit(fd, bit / 8, bit % 8);
	}
	ck_assert_int_eq(close(fd), 0);
	ck_ok(try_open(sample->path, &err));
	(void)printf("damage: %u flips of bytes %llu to %llu refused\n", flips,
		(unsigned long long)begin, (unsigned long long)end);
}

START_TEST(every_bit_of_the_header_counts)
{
	struct sample sample;

	make_sample(&sample, "header.gsnap", 2);
	flip_all(&sample, 0, sample.header_bytes);
}
END_TEST

START_TEST(every_bit_of_leaf_table_and_seal_counts)
{
	struct sample sample;

	make_sample(&sample, "seal.gsnap", 3);
	flip_all(&sample, sample.leaves_offset, sample.file_bytes);
}
END_TEST

static void check_truncation(const struct sample *sample, uint64_t length)
{
	gpusnap_error err;
	gpusnap_status status;

	ck_assert_int_eq(truncate(sample->path, (off_t)length), 0);
	status = try_open(sample->path, &err);
	ck_assert_msg(status == GPUSNAP_E_FORMAT || status == GPUSNAP_E_CORRUPT, "%llu bytes: %s",
		(unsigned long long)length, gpusnap_status_name(status));
}

/* Each byte of header and tail; in the data, where nothing but the length differs, each 64th. */
START_TEST(every_truncation_is_refused)
{
	struct sample sample;
	unsigned cuts = 1;
	uint64_t length;

	make_sample(&sample, "cut.gsnap", 4);
	for (length = sample.file_bytes - 1; length > sample.leaves_offset;
		length -= LENGTH_STEP, cuts++)
		check_truncation(&sample, length);
	for (; length > sample.header_bytes; length -= 64, cuts++)
		check_truncation(&sample, length);
	for (; length > LENGTH_STEP; length -= LENGTH_STEP, cuts++)
		check_truncation(&sample, length);
	check_truncation(&sample, 0);
	(void)printf("damage: %u truncations refused\n", cuts);
}
END_TEST

static void check_appended(const struct sample *sample, const uint8_t *garbage, size_t length)
{
	int fd = open(sample->path, O_WRONLY | O_APPEND | O_CLOEXEC);
	gpusnap_status status;
	gpusnap_error err;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, garbage, length), (ssize_t)length);
	ck_assert_int_eq(close(fd), 0);
	status = try_open(sample->path, &err);
	ck_assert_msg(status == GPUSNAP_E_FORMAT || status == GPUSNAP_E_CORRUPT,
		"%zu bytes more: %s", length, gpusnap_status_name(status));
	ck_assert_int_eq(truncate(sample->path, (off_t)sample->file_bytes), 0);
	ck_ok(try_open(sample->path, &err));
}

START_TEST(bytes_behind_the_end_are_refused)
{
	static const uint8_t zeros[5000];
	static const size_t lengths[] = {1, 15, 16, 511, 512, 4095, 4096, 4097, 5000};
	uint8_t noise[sizeof zeros], *file;
	uint64_t random = 9;
	struct sample sample;
	size_t length;

	make_sample(&sample, "long.gsnap", 5);
	random_fill(&random, noise, sizeof noise);
	file = read_file(sample.path, &length);
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		check_appended(&sample, zeros, lengths[i]);
		check_appended(&sample, noise, lengths[i]);
		/* Its own end once more, which at 4096 is a good seal of a shorter file. */
		check_appended(&sample, file + length - lengths[i], lengths[i]);
	}
	free(file);
}
END_TEST

static void swap_tails(const struct sample *a, const struct sample *b, uint64_t offset)
{
	size_t a_length, b_length;
	uint8_t *x = read_file(a->path, &a_length), *y = read_file(b->path, &b_length);
	uint8_t *mixed;

	ck_assert_uint_eq(a_length, b_length);
	mixed = malloc(a_length);
	memcpy(mixed, x, a_length);
	memcpy(mixed + offset, y + offset, a_length - offset);
	file_write(a->path, mixed, a_length);
	free(mixed);
	free(x);
	free(y);
}

START_TEST(another_files_seal_is_refused)
{
	struct sample a, b;
	gpusnap_error err;

	make_sample(&a, "a.gsnap", 6);
	make_sample(&b, "b.gsnap", 7);
	swap_tails(&a, &b, a.file_bytes - GPUSNAP_SEAL_BYTES);
	ck_fails(try_open(a.path, &err), GPUSNAP_E_CORRUPT, "header");
	make_sample(&a, "a.gsnap", 6);
	swap_tails(&a, &b, a.leaves_offset);
	ck_fails(try_open(a.path, &err), GPUSNAP_E_CORRUPT, "header");
}
END_TEST

START_TEST(what_is_no_snapshot_is_said_to_be_what_it_is)
{
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:12\n";
	char path[PATH_MAX], fifo[PATH_MAX];
	uint8_t zeros[10000] = {0};
	gpusnap_error err;

	tempdir_join(path, folder, "other");
	tempdir_join(fifo, folder, "fifo");
	file_write(path, pointer, sizeof pointer - 1);
	ck_fails(try_open(path, &err), GPUSNAP_E_FORMAT, "Git");
	file_write(path, "PK\3\4", 4);
	ck_fails(try_open(path, &err), GPUSNAP_E_FORMAT, path);
	file_write(path, zeros, sizeof zeros);
	ck_status(try_open(path, &err), GPUSNAP_E_FORMAT);
	file_write(path, "", 0);
	ck_status(try_open(path, &err), GPUSNAP_E_FORMAT);
	ck_assert_int_eq(unlink(path), 0);
	ck_fails(try_open(path, &err), GPUSNAP_E_IO, "No such file");
	ck_assert_int_eq(err.os_errno, ENOENT);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	ck_fails(try_open(fifo, &err), GPUSNAP_E_INVALID, "not a regular file");
	ck_fails(try_open(folder, &err), GPUSNAP_E_INVALID, "not a regular file");
}
END_TEST

/* The files that every version must read, or refuse as their names say: STATUS__WHAT.gsnap. */
static unsigned open_golden(
	const char *kind, gpusnap_status (*check)(const char *, gpusnap_error *))
{
	char root[PATH_MAX], path[PATH_MAX], name[64];
	struct dirent *entry;
	unsigned count = 0;
	gpusnap_error err;
	DIR *stream;

	tempdir_join(root, GPUSNAP_TEST_DATA "/../../formats/golden", kind);
	stream = opendir(root);
	ck_assert_ptr_nonnull(stream);
	while ((entry = readdir(stream))) {
		const char *end = strstr(entry->d_name, "__");
		gpusnap_status expected = GPUSNAP_OK, status;

		if (!strstr(entry->d_name, ".gsnap"))
			continue;
		tempdir_join(path, root, entry->d_name);
		if (end) {
			(void)snprintf(name, sizeof name, "E_%.*s", (int)(end - entry->d_name),
				entry->d_name);
			for (char *p = name; *p; p++)
				*p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
			expected = gpusnap_status_from_name(name);
		}
		status = check(path, &err);
		ck_assert_msg(status == expected, "%s: %s %s", path, gpusnap_status_name(status),
			status ? err.message : "");
		count++;
	}
	(void)closedir(stream);
	return count;
}

static gpusnap_status open_and_verify(const char *path, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_status status = gpusnap_snapshot_open(path, &snapshot, err);

	if (status)
		return status;
	status = gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, err);
	gpusnap_snapshot_close(snapshot);
	if (status)
		return status;
	status = damage.count ? GPUSNAP_E_CORRUPT : GPUSNAP_OK;
	(void)strcpy(err->message, "damaged data");
	gpusnap_damage_release(&damage);
	return status;
}

START_TEST(golden_files_are_read_or_refused_as_their_names_say)
{
	ck_assert_uint_ge(open_golden("good", open_and_verify), 5);
	ck_assert_uint_ge(open_golden("bad", open_and_verify), 40);
}
END_TEST

START_TEST(golden_files_are_restored)
{
	char path[PATH_MAX];
	gpusnap_restore_report report;
	gpusnap_registry *registry;
	gpusnap_device *device;
	gpusnap_buffer_info info;
	gpusnap_error err;

	tempdir_join(path, GPUSNAP_TEST_DATA "/../../formats/golden/good", "two_regions.gsnap");
	ck_ok(gpusnap_device_open("host", &device, &err));
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &registry, &report, &err));
	ck_assert_uint_eq(gpusnap_region_count(registry), 2);
	ck_ok(gpusnap_buffer_at(registry, 0, &info, &err));
	gpusnap_registry_free(registry);
	gpusnap_device_close(device);
}
END_TEST

START_TEST(an_open_snapshot_outlives_its_name)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	struct sample sample;
	gpusnap_error err;

	make_sample(&sample, "unlinked.gsnap", 8);
	ck_ok(gpusnap_snapshot_open(sample.path, &snapshot, &err));
	ck_assert_int_eq(unlink(sample.path), 0);
	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
}
END_TEST

static SRunner *make_runner(void)
{
	const TTest *const tests[] = {
		entries_are_what_was_saved,
		every_bit_of_the_header_counts,
		every_bit_of_leaf_table_and_seal_counts,
		every_truncation_is_refused,
		bytes_behind_the_end_are_refused,
		another_files_seal_is_refused,
		what_is_no_snapshot_is_said_to_be_what_it_is,
		golden_files_are_read_or_refused_as_their_names_say,
		golden_files_are_restored,
		an_open_snapshot_outlives_its_name,
	};
	Suite *suite = suite_create("snapshot_open");
	TCase *cases = tcase_create("snapshot_open");

	tcase_set_timeout(cases, 60);
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		tcase_add_test(cases, tests[i]);
	suite_add_tcase(suite, cases);
	return srunner_create(suite);
}

int main(void)
{
	SRunner *runner;
	int failed;

	tempdir_make(folder, "/dev/shm");
	runner = make_runner();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	tempdir_remove(folder);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
