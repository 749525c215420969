/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/endpoint.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "formats/base/fail.h"

/* Leaves room for "/", a pid and ".sock". */
enum { DIRECTORY_MAX = ENDPOINT_PATH_MAX - 24 };

static gpusnap_status directory_path(char path[DIRECTORY_MAX], gpusnap_error *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int length;

	if (runtime && runtime[0] == '/')
		length = snprintf(path, DIRECTORY_MAX, "%s/gpusnap", runtime);
	else
		length = snprintf(path, DIRECTORY_MAX, "/tmp/gpusnap-%u", (unsigned)getuid());
	if (length >= DIRECTORY_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"XDG_RUNTIME_DIR is too long for a socket path: '%s'", runtime);
	return GPUSNAP_OK;
}

/* Anybody may make a directory in /tmp: only one of ours, closed to others, is trusted. */
static gpusnap_status check_directory(const char *path, gpusnap_error *err)
{
	struct stat st;

	if (lstat(path, &st))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "'%s': %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
		return gsn_fail(err, GPUSNAP_E_IO,
			"'%s' must be a directory of user %u with mode 0700 (it is of user %u with "
			"mode %04o): remove it",
			path, (unsigned)getuid(), (unsigned)st.st_uid, st.st_mode & 07777);
	return GPUSNAP_OK;
}

gpusnap_status endpoint_check(const char *path, gpusnap_error *err)
{
	char copy[ENDPOINT_PATH_MAX];

	(void)snprintf(copy, sizeof copy, "%s", path);
	return check_directory(dirname(copy), err);
}

gpusnap_status endpoint_prepare(char path[ENDPOINT_PATH_MAX], gpusnap_error *err)
{
	char directory[DIRECTORY_MAX];
	gpusnap_status s = directory_path(directory, err);

	if (s)
		return s;
	if (mkdir(directory, 0700) && errno != EEXIST)
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "cannot make '%s': %s", directory,
			strerror(errno));
	s = check_directory(directory, err);
	if (s)
		return s;
	if (snprintf(path, ENDPOINT_PATH_MAX, "%s/%d.sock", directory, (int)getpid()) >=
		ENDPOINT_PATH_MAX)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "socket path in '%s' is too long", directory);
	return GPUSNAP_OK;
}

/* "1234.sock" -> 1234, when such a process lives; 0 otherwise. */
static int64_t live_pid(const char *name)
{
	char *end;
	long pid = strtol(name, &end, 10);

	if (end == name || pid <= 0 || pid > INT32_MAX || strcmp(end, ".sock") != 0)
		return 0;
	return kill((pid_t)pid, 0) == 0 || errno == EPERM ? pid : 0;
}

/*
 * A killed process leaves its socket behind, and its pid may be another's by now (soon so in a
 * container that keeps /tmp). A full queue is an answer too: somebody listens.
 */
static bool is_listening(const char *directory, int64_t pid)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool listening;

	if (fd < 0)
		return true;
	(void)snprintf(
		address.sun_path, sizeof address.sun_path, "%s/%d.sock", directory, (int)pid);
	listening = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
		    (errno != ECONNREFUSED && errno != ENOENT);
	(void)close(fd);
	return listening;
}

static gpusnap_status list_append(
	struct endpoint_list *list, const char *directory, int64_t pid, gpusnap_error *err)
{
	struct endpoint *grown = realloc(list->items, (list->count + 1) * sizeof *list->items);

	if (!grown)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
	list->items = grown;
	grown[list->count].pid = pid;
	(void)snprintf(
		grown[list->count].path, ENDPOINT_PATH_MAX, "%s/%d.sock", directory, (int)pid);
	list->count++;
	return GPUSNAP_OK;
}

static int by_pid(const void *a, const void *b)
{
	const struct endpoint *x = a;
	const struct endpoint *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

gpusnap_status endpoint_find_all(struct endpoint_list *ret_list, gpusnap_error *err)
{
	char directory[DIRECTORY_MAX];
	struct endpoint_list list = {0};
	struct dirent *entry;
	DIR *dir = NULL;
	gpusnap_status s = directory_path(directory, err);

	if (s)
		return s;
	if (access(directory, F_OK) == 0) {
		s = check_directory(directory, err);
		if (s)
			return s;
		dir = opendir(directory);
	}
	while (dir && !s && (entry = readdir(dir))) {
		int64_t pid = live_pid(entry->d_name);

		if (pid && is_listening(directory, pid))
			s = list_append(&list, directory, pid, err);
	}
	if (dir)
		(void)closedir(dir);
	if (s) {
		endpoint_list_free(&list);
		return s;
	}
	if (list.count)
		qsort(list.items, list.count, sizeof *list.items, by_pid);
	*ret_list = list;
	return GPUSNAP_OK;
}

void endpoint_list_free(struct endpoint_list *list)
{
	free(list->items);
	*list = (struct endpoint_list){0};
}

static gpusnap_status copy_path(char path[ENDPOINT_PATH_MAX], const char *from, gpusnap_error *err)
{
	if (snprintf(path, ENDPOINT_PATH_MAX, "%s", from) >= ENDPOINT_PATH_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID, "socket path is over %d characters: '%s'",
			ENDPOINT_PATH_MAX - 1, from);
	return GPUSNAP_OK;
}

static gpusnap_status select_pid(const struct endpoint_list *list, int64_t pid,
	char path[ENDPOINT_PATH_MAX], gpusnap_error *err)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].pid == pid)
			return copy_path(path, list->items[i].path, err);
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"process %lld has no agent of this user; gpusnap ps lists those that have",
		(long long)pid);
}

static gpusnap_status select_only(
	const struct endpoint_list *list, char path[ENDPOINT_PATH_MAX], gpusnap_error *err)
{
	char pids[256] = "";
	size_t used = 0;

	if (list->count == 1)
		return copy_path(path, list->items[0].path, err);
	if (list->count == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"no process with an agent; start one with gpusnap serve, or give --socket");
	for (size_t i = 0; i < list->count && used < sizeof pids - 16; i++)
		used += (size_t)snprintf(
			pids + used, sizeof pids - used, " %lld", (long long)list->items[i].pid);
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"%zu processes with an agent, choose one with --pid:%s", list->count, pids);
}

gpusnap_status endpoint_select(
	const struct target_options *target, char path[ENDPOINT_PATH_MAX], gpusnap_error *err)
{
	struct endpoint_list list;
	gpusnap_status s;

	if (target->socket)
		return copy_path(path, target->socket, err);
	s = endpoint_find_all(&list, err);
	if (s)
		return s;
	s = target->pid ? select_pid(&list, target->pid, path, err) : select_only(&list, path, err);
	endpoint_list_free(&list);
	return s;
}
