/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/source_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "loader/source_file.h"

#define CONFIG_NAME   "config.json"
#define REF_NAME      "refs/main"
#define REF_BYTES_MAX 256u /* a commit's 40 digits are usual */

static gpusnap_status entry_exists(
	const char *directory, const char *name, bool *ret_exists, gpusnap_error *err)
{
	char *path = gsn_printf("%s/%s", directory, name);
	struct stat st;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to look for %s", name);
	*ret_exists = stat(path, &st) == 0;
	gsn_free(path);
	return GPUSNAP_OK;
}

/* ---- a file ---- */

static gpusnap_status resolve_file(
	const char *path, struct gsn_source_path *source, gpusnap_error *err)
{
	const char *slash = strrchr(path, '/');

	source->file = gsn_strdup(slash ? slash + 1 : path);
	if (!slash)
		source->directory = gsn_strdup(".");
	else
		source->directory = gsn_strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!source->file || !source->directory)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to open %s", path);
	return entry_exists(source->directory, CONFIG_NAME, &source->configured, err);
}

/* ---- a model's folder in a cache ---- */

/* Trims the line's end; a revision is one name, not a path. */
static gpusnap_status check_revision(
	const char *path, char *revision, size_t bytes, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];
	size_t length = bytes;

	while (length && strchr(" \t\r\n", revision[length - 1]))
		length--;
	revision[length] = '\0';
	if (length && strlen(revision) == length && !strchr(revision, '/') && revision[0] != '.')
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%s/" REF_NAME " holds '%s', which is no revision; give a folder of snapshots/",
		path, gsn_quote(revision, length, quoted));
}

static gpusnap_status resolve_revision(
	const char *path, struct gsn_source_path *source, gpusnap_error *err)
{
	char *text = NULL, *revision = NULL;
	size_t bytes;
	gpusnap_status st = gsn_text_file_read(path, REF_NAME, REF_BYTES_MAX, &text, &bytes, err);

	if (st)
		return st;
	revision = gsn_strndup(text, bytes);
	gsn_free(text);
	if (!revision)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to read %s/" REF_NAME, path);
	st = check_revision(path, revision, bytes, err);
	if (!st) {
		source->directory = gsn_printf("%s/snapshots/%s", path, revision);
		if (!source->directory)
			st = gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to open %s", path);
	}
	gsn_free(revision);
	if (!st)
		st = gsn_source_directory_check(source->directory, err);
	return st;
}

static gpusnap_status resolve_directory(
	const char *path, struct gsn_source_path *source, gpusnap_error *err)
{
	bool cached = false;
	gpusnap_status st = entry_exists(path, CONFIG_NAME, &source->configured, err);

	if (!st && !source->configured)
		st = entry_exists(path, REF_NAME, &cached, err);
	if (st)
		return st;
	/* Without its config.json a directory is refused, by the name of what it lacks. */
	source->configured = true;
	if (cached)
		return resolve_revision(path, source, err);
	source->directory = gsn_strdup(path);
	return source->directory ? GPUSNAP_OK
				 : gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to open %s", path);
}

gpusnap_status gsn_source_path_resolve(
	const char *path, struct gsn_source_path *ret_source, gpusnap_error *err)
{
	struct gsn_source_path source = {0};
	struct stat st;
	gpusnap_status status;

	if (stat(path, &st))
		return gsn_fail_os(
			err, GPUSNAP_E_IO, errno, "no checkpoint %s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		status = resolve_directory(path, &source, err);
	else
		status = resolve_file(path, &source, err);
	if (status)
		gsn_source_path_release(&source);
	else
		*ret_source = source;
	return status;
}

void gsn_source_path_release(struct gsn_source_path *source)
{
	gsn_free(source->directory);
	gsn_free(source->file);
	memset(source, 0, sizeof *source);
}
