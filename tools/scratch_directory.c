/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/scratch_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/fail.h"

/* Folders in it are not looked into: nobody makes any. */
static gpusnap_status remove_directory(const char *path, gpusnap_error *err)
{
	DIR *directory = opendir(path);
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)) != NULL)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		(void)closedir(directory);
	if (rmdir(path))
		return gsn_fail(err, GPUSNAP_E_IO, "%s: not removed: %s", path, strerror(errno));
	return GPUSNAP_OK;
}

/* Wait for the child; signals that end this process go to it instead. */
static int await(pid_t child, const sigset_t *signals)
{
	int status;

	for (;;) {
		int number = 0;

		pid_t ended = waitpid(child, &status, WNOHANG);

		if (ended == child)
			break;
		if (ended < 0)
			return 128; /* nobody knows how it ended */
		if (sigwait(signals, &number) == 0 && number != SIGCHLD)
			(void)kill(child, number);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static gpusnap_status run_child(const char *path, scratch_directory_fn function, void *argument,
	int *ret_status, gpusnap_error *err)
{
	sigset_t signals, before;
	pid_t child;

	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGINT);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGHUP);
	(void)sigaddset(&signals, SIGQUIT);
	(void)sigaddset(&signals, SIGCHLD);
	/* Where it is inherited as ignored, no child is ever waited for. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigprocmask(SIG_BLOCK, &signals, &before);
	(void)fflush(NULL);
	child = fork();
	if (child == 0) {
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(function(argument, path));
	}
	if (child > 0)
		*ret_status = await(child, &signals);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return child > 0 ? GPUSNAP_OK
			 : gsn_fail(err, GPUSNAP_E_NOMEM, "no process: %s", strerror(errno));
}

gpusnap_status scratch_directory_run(const char *parent, const char *prefix,
	scratch_directory_fn function, void *argument, int *ret_status, gpusnap_error *err)
{
	char path[4096];
	gpusnap_status s, removed;

	if (snprintf(path, sizeof path, "%s/%s-XXXXXX", parent, prefix) >= (int)sizeof path)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s: the path is too long", parent);
	if (!mkdtemp(path))
		return gsn_fail(err, GPUSNAP_E_IO, "%s: a folder cannot be made in it: %s", parent,
			strerror(errno));
	s = run_child(path, function, argument, ret_status, err);
	removed = remove_directory(path, s ? NULL : err);
	return s ? s : removed;
}
