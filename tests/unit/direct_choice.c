/* SPDX-License-Identifier: Apache-2.0 */
/* Direct or cached: how an open file is looked at. */
#include "snapshot/direct.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { FILE_BYTES = 4 << 20 };

static char folder[PATH_MAX], shm[PATH_MAX];

static int make_file(const char *where, int flags)
{
	static const uint8_t bytes[FILE_BYTES];
	char path[PATH_MAX];
	int fd;

	tempdir_join(path, where, "file");
	file_write(path, bytes, sizeof bytes);
	fd = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static bool is_direct(int fd)
{
	return (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

static void drop_cache(int fd)
{
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

START_TEST(a_warm_file_is_read_from_the_cache_a_cold_one_directly)
{
	struct gsn_direct_choice choice;
	int fd = make_file(folder, O_RDONLY);
	gpusnap_error err;

	ck_assert_int_ge(gsn_cached_percent(fd), 90);
	ck_ok(gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_AUTO, &choice, &err));
	ck_assert(!choice.direct && !is_direct(fd));
	ck_assert_ptr_nonnull(strstr(choice.why, "page cache"));
	drop_cache(fd);
	ck_assert_int_le(gsn_cached_percent(fd), 10);
	ck_ok(gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_AUTO, &choice, &err));
	ck_assert(choice.direct == is_direct(fd));
	if (choice.direct) { /* where this folder's file system has none, it says something else */
		ck_assert_ptr_nonnull(strstr(choice.why, "takes direct I/O at multiples of"));
		ck_assert(choice.alignment >= 512 && choice.alignment <= GSN_DIRECT_ALIGN);
	} else {
		ck_assert_ptr_null(strstr(choice.why, "takes direct I/O"));
		ck_assert_uint_eq(choice.alignment, 0);
	}
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(what_was_asked_for_is_done_or_refused)
{
	struct gsn_direct_choice choice;
	int fd = make_file(folder, O_RDONLY);
	gpusnap_status status;
	gpusnap_error err;

	status = gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_ON, &choice, &err);
	if (status) {
		ck_assert_int_eq(status, GPUSNAP_E_UNSUPPORTED);
		ck_assert_ptr_nonnull(strstr(err.message, "'file': direct I/O was asked for"));
	} else {
		ck_assert(choice.direct && is_direct(fd));
	}
	ck_ok(gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_OFF, &choice, &err));
	ck_assert(!choice.direct && !is_direct(fd));
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(a_file_in_memory_is_never_direct)
{
	struct gsn_direct_choice choice;
	int fd = make_file(shm, O_RDWR);
	gpusnap_error err;

	ck_ok(gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_AUTO, &choice, &err));
	ck_assert(!choice.direct && !is_direct(fd));
	ck_fails(gsn_direct_choose(fd, "file", GPUSNAP_DIRECT_ON, &choice, &err),
		GPUSNAP_E_UNSUPPORTED, "tmpfs keeps files in memory; use auto");
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(nothing_can_be_said_of_an_empty_file_or_none)
{
	int fd = make_file(folder, O_RDWR);

	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(gsn_cached_percent(fd), -1);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(gsn_cached_percent(-1), -1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_warm_file_is_read_from_the_cache_a_cold_one_directly,
		what_was_asked_for_is_done_or_refused,
		a_file_in_memory_is_never_direct,
		nothing_can_be_said_of_an_empty_file_or_none,
	};
	int result;

	tempdir_make(folder, NULL);
	tempdir_make(shm, "/dev/shm");
	result = RUN_SUITE("direct_choice", tests);
	tempdir_remove(folder);
	tempdir_remove(shm);
	return result;
}
