/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits, read from made-up /proc and /sys trees. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/host_meminfo.h"
#include "tests/support/tempdir.h"

#define MIB (UINT64_C(1) << 20)

static const char machine[] = "MemTotal:        1048576 kB\n"
			      "MemFree:            1024 kB\n"
			      "MemAvailable:     524288 kB\n"
			      "Buffers:               8 kB\n";

static char scratch[PATH_MAX]; /* of all tests: one that fails leaves its root there */
static char root[PATH_MAX];

/* Write ROOT/path, making the folders on the way. */
static void write_file(const char *path, const char *text)
{
	char whole[PATH_MAX];

	tempdir_join(whole, root, path);
	for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
		slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(whole, 0755);
		*slash = '/';
	}
	file_write(whole, text, strlen(text));
}

/* A machine of 1 GiB, half of it available, and the process in this control group. */
static void write_machine(const char *group)
{
	tempdir_make(root, scratch);
	write_file("proc/meminfo", machine);
	if (group)
		write_file("proc/self/cgroup", group);
}

static void remove_tree(const char *path)
{
	char command[PATH_MAX];
	DIR *stream = opendir(path);
	struct dirent *entry;

	while (stream && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		tempdir_join(command, path, entry->d_name);
		if (unlink(command))
			remove_tree(command);
	}
	if (stream)
		(void)closedir(stream);
	(void)rmdir(path);
}

static void ck_memory(uint64_t total_mib, uint64_t available_mib)
{
	struct gsn_host_meminfo info;
	gpusnap_error err;

	ck_ok(gsn_host_meminfo_read(root, &info, &err));
	remove_tree(root);
	ck_assert_uint_eq(info.total_bytes, total_mib * MIB);
	ck_assert_uint_eq(info.available_bytes, available_mib * MIB);
}

START_TEST(without_groups_the_machine_counts)
{
	write_machine(NULL);
	ck_memory(1024, 512);
}
END_TEST

START_TEST(free_pages_that_a_cpu_keeps_are_available)
{
	char zones[512];
	uint64_t pages = 16 * MIB / (uint64_t)sysconf(_SC_PAGESIZE);

	(void)snprintf(zones, sizeof zones,
		"Node 0, zone   Normal\n  pages free     99\n  pagesets\n    cpu: 0\n"
		"              count:    %" PRIu64 "\n              high:     5\n    cpu: 1\n"
		"              count: %" PRIu64 "\n  vm stats threshold: 8\n",
		pages, 2 * pages);
	write_machine(NULL);
	write_file("proc/zoneinfo", zones);
	ck_memory(1024, 512 + 48);
}
END_TEST

START_TEST(a_version_2_limit_counts_without_the_inactive_cache)
{
	write_machine("0::/a/b\n");
	write_file("sys/fs/cgroup/a/b/memory.max", "419430400\n");
	write_file("sys/fs/cgroup/a/b/memory.current", "209715200\n");
	write_file("sys/fs/cgroup/a/b/memory.stat",
		"anon 1\ntotal_inactive_file 7\ninactive_file 104857600\n");
	ck_memory(400, 300);
}
END_TEST

START_TEST(the_lowest_limit_on_the_way_up_counts)
{
	write_machine("1:name=systemd:/x\n0::/a/b\n");
	write_file("sys/fs/cgroup/a/b/memory.max", "max\n");
	write_file("sys/fs/cgroup/a/memory.max", "104857600\n");
	write_file("sys/fs/cgroup/a/memory.current", "1048576\n");
	write_file("sys/fs/cgroup/a/memory.stat", "anon 1\n");
	write_file("sys/fs/cgroup/memory.max", "209715200\n");
	write_file("sys/fs/cgroup/memory.current", "0\n");
	ck_memory(100, 99);
}
END_TEST

START_TEST(a_group_that_is_not_visible_leaves_those_above_it)
{
	write_machine("0::/../outside\n");
	write_file("sys/fs/cgroup/memory.max", "209715200\n");
	write_file("sys/fs/cgroup/memory.current", "314572800\n");
	ck_memory(200, 0);
}
END_TEST

START_TEST(a_version_1_limit_counts)
{
	write_machine("9:name=systemd:/\n4:memory:/job\n0::/\n");
	write_file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "419430400\n");
	write_file("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "209715200\n");
	write_file("sys/fs/cgroup/memory/job/memory.stat",
		"inactive_file 1\ntotal_inactive_file 52428800\n");
	write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	write_file("sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n");
	ck_memory(400, 250);
}
END_TEST

START_TEST(a_machine_that_does_not_tell_is_an_error)
{
	struct gsn_host_meminfo info;
	gpusnap_error err;

	tempdir_make(root, scratch);
	ck_fails(gsn_host_meminfo_read(root, &info, &err), GPUSNAP_E_IO, "proc/meminfo");
	write_file("proc/meminfo", "MemTotal: 5 kB\nXMemAvailable: 4 kB\n");
	ck_fails(gsn_host_meminfo_read(root, &info, &err), GPUSNAP_E_FORMAT, "no MemTotal and");
	remove_tree(root);
}
END_TEST

START_TEST(this_machine_tells)
{
	struct gsn_host_meminfo info;
	gpusnap_error err;

	ck_ok(gsn_host_meminfo_read("", &info, &err));
	ck_assert_uint_gt(info.available_bytes, 0);
	ck_assert_uint_le(info.available_bytes, info.total_bytes);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		without_groups_the_machine_counts,
		free_pages_that_a_cpu_keeps_are_available,
		a_version_2_limit_counts_without_the_inactive_cache,
		the_lowest_limit_on_the_way_up_counts,
		a_group_that_is_not_visible_leaves_those_above_it,
		a_version_1_limit_counts,
		a_machine_that_does_not_tell_is_an_error,
		this_machine_tells,
	};

	int status;

	tempdir_make(scratch, NULL);
	status = RUN_SUITE("memory_limits", tests);
	remove_tree(scratch);
	return status;
}
