/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding out whether O_DIRECT serves a file. That it can be opened so proves little: tmpfs takes
 * the flag and ignores it, overlays take it and fail the read. So the kind of file system is looked
 * at, the kernel is asked for its alignment, and one real transfer decides.
 */
#include "snapshot/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

enum { RESIDENCY_SAMPLES = 64, SECTOR_BYTES = 512 };

/* What is known of a file system before anything is tried. */
enum fs_nature {
	FS_UNKNOWN,
	FS_IN_MEMORY, /* no device below: O_DIRECT would mean nothing */
	FS_REMOTE,    /* O_DIRECT gives up the client's cache and its write gathering */
};

struct fs_kind {
	unsigned long magic;
	enum fs_nature nature;
	const char *name;
};

/* Numbers stand for names that are younger than some headers, or in none. */
static const struct fs_kind known_kinds[] = {
	{TMPFS_MAGIC, FS_IN_MEMORY, "tmpfs"},
	{RAMFS_MAGIC, FS_IN_MEMORY, "ramfs"},
	{HUGETLBFS_MAGIC, FS_IN_MEMORY, "hugetlbfs"},
	{NFS_SUPER_MAGIC, FS_REMOTE, "NFS"},
	{SMB_SUPER_MAGIC, FS_REMOTE, "SMB"},
	{0xfe534d42ul, FS_REMOTE, "SMB2"},
	{OVERLAYFS_SUPER_MAGIC, FS_UNKNOWN, "overlay"},
	{EXT4_SUPER_MAGIC, FS_UNKNOWN, "ext4"},
	{XFS_SUPER_MAGIC, FS_UNKNOWN, "xfs"},
	{BTRFS_SUPER_MAGIC, FS_UNKNOWN, "btrfs"},
	{F2FS_SUPER_MAGIC, FS_UNKNOWN, "f2fs"},
	{ECRYPTFS_SUPER_MAGIC, FS_UNKNOWN, "ecryptfs"},
	{0x65735546ul, FS_UNKNOWN, "fuse"},
	{0x2fc12fc1ul, FS_UNKNOWN, "zfs"},
	{0x0bd00bd0ul, FS_UNKNOWN, "lustre"},
	{CEPH_SUPER_MAGIC, FS_UNKNOWN, "ceph"},
	{V9FS_MAGIC, FS_UNKNOWN, "9p"},
};

static enum fs_nature look_at_fs(int fd, struct gsn_direct_choice *choice)
{
	char *name = choice->file_system;
	struct statfs info;

	(void)snprintf(name, sizeof choice->file_system, "unknown");
	if (fstatfs(fd, &info))
		return FS_UNKNOWN;
	for (size_t i = 0; i < sizeof known_kinds / sizeof known_kinds[0]; i++) {
		if ((unsigned long)info.f_type != known_kinds[i].magic)
			continue;
		(void)snprintf(name, sizeof choice->file_system, "%s", known_kinds[i].name);
		return known_kinds[i].nature;
	}
	(void)snprintf(name, sizeof choice->file_system, "0x%lx", (unsigned long)info.f_type);
	return FS_UNKNOWN;
}

static bool set_flag(int fd, bool direct)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return false;
	flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
	return fcntl(fd, F_SETFL, flags) == 0;
}

/* False when the kernel says that the file cannot be direct, or only with coarser alignment. */
static bool alignment_fits(int fd, struct gsn_direct_choice *choice)
{
#ifdef STATX_DIOALIGN
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) ||
		!(info.stx_mask & STATX_DIOALIGN))
		return true; /* not told: the transfer decides */
	if (!info.stx_dio_offset_align) {
		(void)snprintf(choice->why, sizeof choice->why, "%s has no direct I/O for it",
			choice->file_system);
		return false;
	}
	choice->alignment = (uint32_t)gsn_max(info.stx_dio_offset_align, info.stx_dio_mem_align);
	choice->alignment_source = "statx";
	if (choice->alignment > GSN_DIRECT_ALIGN) {
		(void)snprintf(choice->why, sizeof choice->why,
			"direct I/O wants alignment %u, over %u", choice->alignment,
			GSN_DIRECT_ALIGN);
		return false;
	}
#else
	(void)fd;
	(void)choice;
#endif
	return true;
}

/* One block moved the way that the job will move them all. */
static bool transfer_works(int fd, bool writing, struct gsn_direct_choice *choice)
{
	alignas(GSN_DIRECT_ALIGN) uint8_t block[GSN_DIRECT_ALIGN] = {0};
	ssize_t moved =
		writing ? pwrite(fd, block, sizeof block, 0) : pread(fd, block, sizeof block, 0);

	if (moved < 0)
		(void)snprintf(choice->why, sizeof choice->why, "a direct %s was refused: %s",
			writing ? "write" : "read", strerror(errno));
	return moved >= 0;
}

/* Where the kernel does not tell, a read of one sector off the larger boundary does. */
static void probe_alignment(int fd, struct gsn_direct_choice *choice)
{
	alignas(GSN_DIRECT_ALIGN) uint8_t block[2 * SECTOR_BYTES];

	choice->alignment = pread(fd, block + SECTOR_BYTES, SECTOR_BYTES, SECTOR_BYTES) >= 0
				    ? SECTOR_BYTES
				    : GSN_DIRECT_ALIGN;
	choice->alignment_source = "probe";
}

static bool try_direct(int fd, bool writing, struct gsn_direct_choice *choice)
{
	if (!alignment_fits(fd, choice))
		return false;
	if (!set_flag(fd, true)) {
		(void)snprintf(choice->why, sizeof choice->why, "O_DIRECT was refused: %s",
			strerror(errno));
		return false;
	}
	return transfer_works(fd, writing, choice);
}

static void make_direct(int fd, bool writing, struct gsn_direct_choice *choice)
{
	choice->direct = try_direct(fd, writing, choice);
	if (!choice->direct) {
		choice->alignment = 0;
		choice->alignment_source = "";
		return;
	}
	if (!choice->alignment)
		probe_alignment(fd, choice);
	(void)snprintf(choice->why, sizeof choice->why,
		"%s takes direct I/O at multiples of %u bytes (%s)", choice->file_system,
		choice->alignment, choice->alignment_source);
}

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* the same on every architecture; Linux 6.5 */
#endif

static int ask_cachestat(int fd, uint64_t bytes)
{
	struct {
		uint64_t offset, length;
	} range = {0, bytes};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} pages = {0};
	uint64_t total = gsn_ceil_div(bytes, (uint64_t)sysconf(_SC_PAGESIZE));

	if (syscall(SYS_cachestat, fd, &range, &pages, 0u))
		return -1;
	return (int)gsn_min(100, pages.cached * 100 / total);
}

/* One byte here and there, read only if that needs no waiting. */
static int sample_residency(int fd, uint64_t bytes)
{
	int cached = 0;

	for (uint64_t i = 0; i < RESIDENCY_SAMPLES; i++) {
		uint8_t byte;
		struct iovec piece = {&byte, 1};
		ssize_t got =
			preadv2(fd, &piece, 1, (off_t)(bytes / RESIDENCY_SAMPLES * i), RWF_NOWAIT);

		if (got < 0 && errno != EAGAIN)
			return -1;
		cached += got == 1;
	}
	return cached * 100 / RESIDENCY_SAMPLES;
}

int gsn_cached_percent(int fd)
{
	struct stat file;
	int percent;

	if (fstat(fd, &file) || file.st_size <= 0)
		return -1;
	percent = ask_cachestat(fd, (uint64_t)file.st_size);
	return percent >= 0 ? percent : sample_residency(fd, (uint64_t)file.st_size);
}

static void say_better_cached(struct gsn_direct_choice *choice)
{
	(void)snprintf(
		choice->why, sizeof choice->why, "%s is better used cached", choice->file_system);
}

static int cached_percent(int fd, struct gsn_direct_choice *choice)
{
	int percent = gsn_cached_percent(fd);

	(void)snprintf(
		choice->why, sizeof choice->why, "%d%% of the file is in the page cache", percent);
	return percent;
}

int gsn_direct_resident(int fd, struct gsn_direct_choice *ret_choice)
{
	*ret_choice = (struct gsn_direct_choice){.alignment_source = ""};
	if (look_at_fs(fd, ret_choice) != FS_IN_MEMORY)
		return cached_percent(fd, ret_choice);
	say_better_cached(ret_choice);
	return 100;
}

static bool stays_cached(
	int fd, bool writing, enum fs_nature nature, struct gsn_direct_choice *choice)
{
	if (nature != FS_UNKNOWN) {
		say_better_cached(choice);
		return true;
	}
	return !writing && cached_percent(fd, choice) >= GSN_MOSTLY_CACHED_PERCENT;
}

gpusnap_status gsn_direct_choose(int fd, const char *name, gpusnap_io_direct wanted,
	struct gsn_direct_choice *ret_choice, gpusnap_error *err)
{
	struct gsn_direct_choice choice = {.alignment_source = ""};
	bool writing = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
	enum fs_nature nature = look_at_fs(fd, &choice);

	if (wanted == GPUSNAP_DIRECT_ON && nature == FS_IN_MEMORY)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"'%s': direct I/O was asked for, but %s keeps files in memory; use auto",
			name, choice.file_system);
	if (wanted == GPUSNAP_DIRECT_OFF)
		(void)snprintf(choice.why, sizeof choice.why, "cached I/O was asked for");
	else if (wanted == GPUSNAP_DIRECT_ON || !stays_cached(fd, writing, nature, &choice))
		make_direct(fd, writing, &choice);
	if (wanted == GPUSNAP_DIRECT_ON && !choice.direct)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"'%s': direct I/O was asked for, but %s; use auto", name, choice.why);
	if (!choice.direct && !set_flag(fd, false))
		return gsn_fail_os(
			err, GPUSNAP_E_IO, errno, "'%s': fcntl: %s", name, strerror(errno));
	*ret_choice = choice;
	return GPUSNAP_OK;
}
