/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the parent of a delta. Names and directories only say where to look: a file is the parent
 * when its seal has the root. What was found on the way and was not is kept for the message.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "snapshot/chain.h"

struct search {
	const gpusnap_snapshot *snapshot; /* whose chain it is; its links so far */
	const gpusnap_snapshot *child;	  /* the last of them */
	const char *hint;
	gpusnap_snapshot *found;
	gpusnap_error why; /* the first file of that name was not it */
};

/* ---- what a missing parent means ---- */

/* The first leaf that the child does not hold, and how many there are. */
static uint64_t count_missing(
	const gpusnap_snapshot *child, const char **ret_name, uint64_t *ret_leaf)
{
	const gpusnap_plan_delta *delta = child->plan->delta;
	uint64_t total = 0;

	for (uint32_t i = 0; i < delta->entry_count; i++) {
		const gpusnap_delta_entry *entry = &delta->entries[i];
		const gpusnap_delta_run *run = entry->changed;
		uint64_t missing =
			gpusnap_leaf_count(entry->bytes) - gpusnap_delta_leaf_count(entry);
		uint64_t leaf = 0;

		if (missing && !total) {
			for (uint32_t k = 0; k < entry->run_count && run[k].first == leaf; k++)
				leaf += run[k].count;
			*ret_name = entry->name;
			*ret_leaf = leaf;
		}
		total += missing;
	}
	return total;
}

static gpusnap_status fail_missing(const struct search *search, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES], root[GPUSNAP_DIGEST_TEXT];
	const char *name = "";
	uint64_t leaf = 0;
	uint64_t missing = count_missing(search->child, &name, &leaf);
	gpusnap_status status = search->why.status;
	const char *remedy = "give the directory that it is in (--parent-dir)";

	if (!status)
		status = gsn_fail_os(err, GPUSNAP_E_IO, ENOENT,
			"'%s': its parent '%.64s' is missing", search->child->path,
			gsn_quote(search->hint, strlen(search->hint), quoted));
	else if (err)
		*err = search->why;
	if (err && missing) {
		gpusnap_error found = *err;

		gsn_error_set(err, found.status, found.os_errno, found.offset,
			"%s; root %s has '%.48s' leaf %" PRIu64 " and %" PRIu64 " more leaves: %s",
			found.message, gpusnap_digest_format(search->child->seal.parent_root, root),
			gsn_quote(name, strlen(name), quoted), leaf, missing - 1, remedy);
	}
	return status;
}

/* ---- one file ---- */

static bool is_link(const gpusnap_snapshot *snapshot, const gpusnap_snapshot *file)
{
	for (uint32_t i = 0; i < snapshot->link_count; i++)
		if (snapshot->links[i]->device == file->device &&
			snapshot->links[i]->inode == file->inode)
			return true;
	return false;
}

static void keep_reason(struct search *search, const gpusnap_error *why)
{
	if (search->why.status)
		return;
	search->why = *why;
	gsn_error_prefix(&search->why, "parent of '%.80s'", search->child->path);
}

static void refuse(struct search *search, const gpusnap_snapshot *file)
{
	char found[GPUSNAP_DIGEST_TEXT];
	gpusnap_error why;

	if (is_link(search->snapshot, file))
		(void)gsn_fail(&why, GPUSNAP_E_FORMAT,
			"'%.80s' is in its own chain already, a cycle", file->path);
	else
		(void)gsn_fail(&why, GPUSNAP_E_MISMATCH, "'%.80s' is another snapshot, of root %s",
			file->path, gpusnap_digest_format(file->seal.root, found));
	keep_reason(search, &why);
}

/* Takes the file when it is the parent. Only lack of memory ends the search. */
static gpusnap_status try_file(struct search *search, const char *path, gpusnap_error *err)
{
	gpusnap_snapshot *file;
	gpusnap_error why;
	gpusnap_status status = gsn_snapshot_open_link(path, &file, &why);

	if (status == GPUSNAP_E_NOMEM || status == GPUSNAP_E_LIMIT) {
		if (err)
			*err = why;
		return status;
	}
	if (status) {
		if (why.os_errno != ENOENT)
			keep_reason(search, &why);
		return GPUSNAP_OK;
	}
	if (!is_link(search->snapshot, file) &&
		gpusnap_digest_equal(file->seal.root, search->child->seal.parent_root)) {
		search->found = file;
		return GPUSNAP_OK;
	}
	refuse(search, file);
	gpusnap_snapshot_close(file);
	return GPUSNAP_OK;
}

static gpusnap_status try_name(struct search *search, const char *directory, size_t length,
	const char *name, gpusnap_error *err)
{
	char *path = gsn_printf("%.*s%s%s", (int)length, directory,
		length && directory[length - 1] != '/' ? "/" : "", name);
	gpusnap_status status;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a path");
	status = try_file(search, path, err);
	gsn_free(path);
	return status;
}

/* ---- a directory ---- */

/* Only the seals are read of files that are not it. */
static gpusnap_status try_any_name(
	struct search *search, const char *directory, const char *name, gpusnap_error *err)
{
	char *path = gsn_printf("%s/%s", directory, name);
	gpusnap_seal seal;
	gpusnap_status status = GPUSNAP_OK;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a path");
	if (gsn_snapshot_peek_seal(path, &seal) == GPUSNAP_OK &&
		gpusnap_digest_equal(seal.root, search->child->seal.parent_root))
		status = try_file(search, path, err);
	gsn_free(path);
	return status;
}

static gpusnap_status try_directory(struct search *search, const char *path, gpusnap_error *err)
{
	DIR *directory = opendir(path);
	gpusnap_status status = GPUSNAP_OK;
	const struct dirent *entry;

	if (!directory)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
			"directory for parents '%s': %s", path, strerror(errno));
	while (!status && !search->found && (entry = readdir(directory)))
		if (entry->d_type == DT_REG || entry->d_type == DT_LNK ||
			entry->d_type == DT_UNKNOWN)
			status = try_any_name(search, path, entry->d_name, err);
	(void)closedir(directory);
	return status;
}

static gpusnap_status try_beside(
	struct search *search, const gpusnap_snapshot *file, gpusnap_error *err)
{
	const char *slash = strrchr(file->path, '/');

	return try_name(search, file->path, slash ? (size_t)(slash - file->path) + 1 : 0,
		search->hint, err);
}

static gpusnap_status search_all(
	struct search *search, const gpusnap_snapshot_open_options *options, gpusnap_error *err)
{
	gpusnap_status status = try_beside(search, search->child, err);

	if (!status && !search->found && search->child != search->snapshot)
		status = try_beside(search, search->snapshot, err);
	for (size_t i = 0; !status && !search->found && i < options->parent_dir_count; i++)
		status = try_name(search, options->parent_dirs[i], strlen(options->parent_dirs[i]),
			search->hint, err);
	for (size_t i = 0; !status && !search->found && i < options->parent_dir_count; i++)
		status = try_directory(search, options->parent_dirs[i], err);
	return status;
}

gpusnap_status gsn_parent_find(const gpusnap_snapshot *snapshot, const gpusnap_snapshot *child,
	const gpusnap_snapshot_open_options *options, gpusnap_snapshot **ret_parent,
	gpusnap_error *err)
{
	struct search search = {
		.snapshot = snapshot,
		.child = child,
		.hint = child->plan->delta->parent,
	};
	gpusnap_status status = search_all(&search, options, err);

	if (!status && !search.found)
		status = fail_missing(&search, err);
	if (status)
		return status;
	*ret_parent = search.found;
	return GPUSNAP_OK;
}
