/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/flipping_fs.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/flip.h"

static void note(const struct flipping_fs *flipping, char operation)
{
	size_t length;

	if (!flipping->journal)
		return;
	length = strlen(flipping->journal);
	assert(length + 1 < FLIPPING_JOURNAL);
	flipping->journal[length] = operation;
	flipping->journal[length + 1] = '\0';
}

static int flip_and_fsync(const struct gsn_fs *fs, int fd)
{
	const struct flipping_fs *flipping = (const struct flipping_fs *)fs;
	char path[32];

	note(flipping, 's');
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (flipping->flips)
		flip_bit_of(path, flipping->offset, flipping->bit);
	return gsn_fs_posix.fsync(&gsn_fs_posix, fd);
}

static int noted_fsync_directory(const struct gsn_fs *fs, int directory)
{
	note((const struct flipping_fs *)fs, 'd');
	return gsn_fs_posix.fsync_directory(&gsn_fs_posix, directory);
}

static int noted_open_again(const struct gsn_fs *fs, int fd)
{
	note((const struct flipping_fs *)fs, 'o');
	return gsn_fs_posix.open_again(&gsn_fs_posix, fd);
}

static int noted_drop_cache(const struct gsn_fs *fs, int fd)
{
	note((const struct flipping_fs *)fs, 'c');
	return gsn_fs_posix.drop_cache(&gsn_fs_posix, fd);
}

static int noted_link_unnamed(const struct gsn_fs *fs, int fd, int directory, const char *name)
{
	note((const struct flipping_fs *)fs, 'l');
	return gsn_fs_posix.link_unnamed(&gsn_fs_posix, fd, directory, name);
}

static int noted_rename_noreplace(
	const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	note((const struct flipping_fs *)fs, 'l');
	return gsn_fs_posix.rename_noreplace(&gsn_fs_posix, directory, from, to);
}

struct flipping_fs flipping_fs_make(void)
{
	struct flipping_fs flipping = {.table = gsn_fs_posix};

	flipping.table.fsync = flip_and_fsync;
	flipping.table.fsync_directory = noted_fsync_directory;
	flipping.table.open_again = noted_open_again;
	flipping.table.drop_cache = noted_drop_cache;
	flipping.table.link_unnamed = noted_link_unnamed;
	flipping.table.rename_noreplace = noted_rename_noreplace;
	return flipping;
}
