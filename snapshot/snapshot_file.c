/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a snapshot: from the seal at its end to the header at its beginning and the leaf table,
 * each proved by a digest before it is understood, each length held against the file's before
 * memory is taken for it. The order of the checks is that of formats/gsnap.md, section 5.1.
 */
#include "snapshot/snapshot_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/chain.h"

/* ---- reading ---- */

static gpusnap_status read_at(const gpusnap_snapshot *snapshot, void *memory, uint64_t bytes,
	uint64_t offset, gpusnap_error *err)
{
	uint8_t *at = memory;
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t got = pread(
			snapshot->fd, at + done, (size_t)(bytes - done), (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return gsn_fail_os(err, GPUSNAP_E_IO, errno, "read at %" PRIu64 ": %s",
				offset + done, strerror(errno));
		if (got == 0)
			return gsn_fail_at(err, GPUSNAP_E_CORRUPT, offset + done,
				"ends at %" PRIu64 " although it had %" PRIu64
				" bytes when it was opened: truncated since",
				offset + done, snapshot->file_bytes);
		done += (uint64_t)got;
	}
	return GPUSNAP_OK;
}

/* O_NONBLOCK keeps a FIFO or a device from blocking the open; a regular file ignores it. */
static gpusnap_status open_file(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	struct stat file;

	snapshot->fd = open(snapshot->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (snapshot->fd < 0 || fstat(snapshot->fd, &file))
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno, "%s", strerror(errno));
	if (!S_ISREG(file.st_mode))
		return gsn_fail(err, GPUSNAP_E_INVALID, "is not a regular file");
	snapshot->device = file.st_dev;
	snapshot->inode = file.st_ino;
	snapshot->file_bytes = (uint64_t)file.st_size;
	return GPUSNAP_OK;
}

/* ---- seal ---- */

/* A file that is no snapshot: say what it is where its first bytes tell. */
static gpusnap_status diagnose(
	const gpusnap_snapshot *snapshot, const gpusnap_error *seal_error, gpusnap_error *err)
{
	uint8_t prefix[64];
	uint64_t length = gsn_min(snapshot->file_bytes, sizeof prefix);
	uint64_t json_bytes;
	gpusnap_status status = read_at(snapshot, prefix, length, 0, err);

	if (!status)
		status = gpusnap_header_measure(
			prefix, (size_t)length, snapshot->file_bytes, &json_bytes, err);
	if (status)
		return status;
	if (err)
		*err = *seal_error;
	return seal_error->status;
}

static gpusnap_status read_seal(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	uint8_t bytes[GPUSNAP_SEAL_BYTES];
	gpusnap_error seal_error = {GPUSNAP_OK};
	gpusnap_status status;

	if (snapshot->file_bytes < sizeof bytes) {
		(void)gsn_fail(&seal_error, GPUSNAP_E_FORMAT,
			"has %" PRIu64 " bytes, less than a seal: no snapshot, or cut off",
			snapshot->file_bytes);
		return diagnose(snapshot, &seal_error, err);
	}
	status = read_at(snapshot, bytes, sizeof bytes, snapshot->file_bytes - sizeof bytes, err);
	if (status)
		return status;
	status = gpusnap_seal_decode(bytes, snapshot->file_bytes, &snapshot->seal, &seal_error);
	if (status == GPUSNAP_E_FORMAT)
		return diagnose(snapshot, &seal_error, err);
	if (status && err)
		*err = seal_error;
	return status;
}

/* ---- header and plan ---- */

static gpusnap_status read_header(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	uint64_t bytes = snapshot->seal.header_bytes;
	gpusnap_status status;

	/* The seal has held it against the file's length; this is the format's own limit. */
	if (bytes - 8 > GPUSNAP_HEADER_JSON_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"header has %" PRIu64 " bytes, the limit is %u", bytes,
			GPUSNAP_HEADER_JSON_MAX);
	snapshot->header_bytes = gsn_alloc((size_t)bytes, 1);
	if (!snapshot->header_bytes)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a header of %" PRIu64 " bytes", bytes);
	status = read_at(snapshot, snapshot->header_bytes, bytes, 0, err);
	if (status)
		return status;
	if (!gpusnap_digest_equal(gpusnap_digest_of(snapshot->header_bytes, (size_t)bytes),
		    snapshot->seal.header))
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"header (bytes 0 to %" PRIu64 ") does not match the seal", bytes);
	return GPUSNAP_OK;
}

static gpusnap_status parse_header(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	uint64_t json_bytes;
	const char *plan;
	gpusnap_status status = gpusnap_header_measure(snapshot->header_bytes,
		(size_t)snapshot->seal.header_bytes, snapshot->file_bytes, &json_bytes, err);

	if (status)
		return status;
	if (json_bytes + 8 != snapshot->seal.header_bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"header has %" PRIu64 " bytes, its seal says %" PRIu64, json_bytes + 8,
			snapshot->seal.header_bytes);
	status = gpusnap_header_parse((const char *)snapshot->header_bytes + 8, json_bytes,
		snapshot->file_bytes, &snapshot->header, err);
	if (status)
		return status;
	plan = gpusnap_header_metadata(snapshot->header, GPUSNAP_PLAN_KEY);
	if (!plan)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "header has no plan (metadata key '%s')",
			GPUSNAP_PLAN_KEY);
	status = gpusnap_plan_decode(plan, strlen(plan), snapshot->header, &snapshot->plan, err);
	if (status)
		return status;
	return gpusnap_plan_match_seal(snapshot->plan, snapshot->header, &snapshot->seal, err);
}

/* ---- entries and leaves ---- */

static void add_entry(gpusnap_snapshot *snapshot, gpusnap_snapshot_entry entry, uint64_t *leaf)
{
	entry.first_leaf = *leaf;
	entry.leaf_count = gpusnap_leaf_count(entry.bytes);
	*leaf += entry.leaf_count;
	snapshot->entries[snapshot->entry_count] = entry;
	snapshot->by_name[snapshot->entry_count] = (uint32_t)snapshot->entry_count;
	snapshot->entry_count++;
}

/* Everything but leaves and seal, in the order that the leaf table follows. */
static void list_tensors(gpusnap_snapshot *snapshot, uint64_t *leaf)
{
	size_t count = gpusnap_header_tensor_count(snapshot->header);

	for (size_t i = 0; i < count; i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(snapshot->header, i);

		if (strcmp(tensor->name, GPUSNAP_LEAVES_NAME) == 0 ||
			strcmp(tensor->name, GPUSNAP_SEAL_NAME) == 0)
			continue;
		add_entry(snapshot,
			(gpusnap_snapshot_entry){
				.name = tensor->name,
				.dtype = tensor->dtype,
				.rank = tensor->rank,
				.shape = tensor->shape,
				.bytes = tensor->end - tensor->begin,
				.file_offset = snapshot->seal.header_bytes + tensor->begin,
			},
			leaf);
	}
}

static int compare_buffers(const void *a, const void *b)
{
	return strcmp((*(const gpusnap_plan_buffer *const *)a)->name,
		(*(const gpusnap_plan_buffer *const *)b)->name);
}

/* A name that is no buffer's is that of a raw range, which is bytes. */
static void list_delta(
	gpusnap_snapshot *snapshot, const gpusnap_plan_buffer **sorted, uint64_t *leaf)
{
	const gpusnap_plan *plan = snapshot->plan;

	qsort(sorted, plan->buffer_count, sizeof(void *), compare_buffers);
	for (uint32_t i = 0; i < plan->delta->entry_count; i++) {
		const gpusnap_delta_entry *entry = &plan->delta->entries[i];
		const gpusnap_plan_buffer key = {.name = entry->name}, *wanted = &key;
		const gpusnap_plan_buffer *const *found = bsearch(
			&wanted, sorted, plan->buffer_count, sizeof(void *), compare_buffers);

		add_entry(snapshot,
			(gpusnap_snapshot_entry){
				.name = entry->name,
				.dtype = found ? (*found)->dtype : GPUSNAP_U8,
				.rank = found ? (*found)->rank : 1,
				.shape = found ? (*found)->shape : &entry->bytes,
				.bytes = entry->bytes,
			},
			leaf);
	}
}

static int compare_names(const void *a, const void *b, void *argument)
{
	const gpusnap_snapshot *snapshot = argument;

	return strcmp(snapshot->entries[*(const uint32_t *)a].name,
		snapshot->entries[*(const uint32_t *)b].name);
}

static gpusnap_status list_entries(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	const gpusnap_plan *plan = snapshot->plan;
	size_t count = plan->delta ? plan->delta->entry_count
				   : gpusnap_header_tensor_count(snapshot->header);
	const gpusnap_plan_buffer **sorted = gsn_alloc(plan->buffer_count, sizeof(void *));
	uint64_t leaf = 0;

	snapshot->entries = gsn_alloc(count, sizeof *snapshot->entries);
	snapshot->by_name = gsn_alloc(count, sizeof *snapshot->by_name);
	if (!snapshot->entries || !snapshot->by_name || !sorted) {
		gsn_free(sorted);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu entries", count);
	}
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		sorted[i] = &plan->buffers[i];
	if (plan->delta)
		list_delta(snapshot, sorted, &leaf);
	else
		list_tensors(snapshot, &leaf);
	gsn_free(sorted);
	qsort_r(snapshot->by_name, snapshot->entry_count, sizeof *snapshot->by_name, compare_names,
		snapshot);
	if (leaf != snapshot->seal.leaf_count)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"entries have %" PRIu64 " leaves, the seal says %" PRIu64, leaf,
			snapshot->seal.leaf_count);
	return GPUSNAP_OK;
}

static gpusnap_status read_leaves(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	const gpusnap_tensor *tensor = gpusnap_header_find(snapshot->header, GPUSNAP_LEAVES_NAME);
	uint64_t bytes = snapshot->seal.leaf_count * GPUSNAP_DIGEST_BYTES;
	uint64_t offset;
	gpusnap_status status;

	if (!tensor || tensor->end - tensor->begin != bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"leaf table has %" PRIu64 " bytes, its seal says %" PRIu64,
			tensor ? tensor->end - tensor->begin : 0, bytes);
	offset = snapshot->seal.header_bytes + tensor->begin;
	snapshot->leaves = gsn_alloc((size_t)snapshot->seal.leaf_count, sizeof(gpusnap_digest));
	if (!snapshot->leaves)
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"no memory for a leaf table of %" PRIu64 " bytes", bytes);
	status = read_at(snapshot, snapshot->leaves, bytes, offset, err);
	if (status)
		return status;
	if (!gpusnap_digest_equal(
		    gpusnap_digest_of(snapshot->leaves, (size_t)bytes), snapshot->seal.leaves))
		return gsn_fail_at(err, GPUSNAP_E_CORRUPT, offset,
			"leaf table (%" PRIu64 " bytes at %" PRIu64 ") does not match the seal",
			bytes, offset);
	for (size_t i = 0; i < snapshot->entry_count; i++) {
		gpusnap_snapshot_entry *entry = &snapshot->entries[i];

		entry->digest = gpusnap_digest_of_buffer(
			entry->bytes, snapshot->leaves + entry->first_leaf);
	}
	return GPUSNAP_OK;
}

static void drop_header_bytes(gpusnap_snapshot *snapshot)
{
	gsn_free(snapshot->header_bytes);
	snapshot->header_bytes = NULL;
}

static gpusnap_status load(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	gpusnap_status status = open_file(snapshot, err);

	if (!status)
		status = read_seal(snapshot, err);
	if (!status)
		status = read_header(snapshot, err);
	if (!status)
		status = parse_header(snapshot, err);
	drop_header_bytes(snapshot);
	if (!status)
		status = list_entries(snapshot, err);
	if (!status)
		status = read_leaves(snapshot, err);
	return status;
}

static gpusnap_snapshot *new_snapshot(const char *path)
{
	gpusnap_snapshot *snapshot = gsn_alloc(1, sizeof *snapshot);

	if (!snapshot)
		return NULL;
	snapshot->fd = -1;
	snapshot->path = gsn_strdup(path);
	if (snapshot->path)
		return snapshot;
	gsn_free(snapshot);
	return NULL;
}

gpusnap_status gsn_snapshot_open_link(const char *path, gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot = new_snapshot(path);
	gpusnap_status status;

	if (!snapshot)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': out of memory", path);
	status = load(snapshot, err);
	if (status) {
		gsn_error_prefix(err, "'%s'", path);
		gpusnap_snapshot_close(snapshot);
		return status;
	}
	*out = snapshot;
	return GPUSNAP_OK;
}

gpusnap_status gsn_snapshot_peek_seal(const char *path, gpusnap_seal *ret_seal)
{
	gpusnap_snapshot *snapshot = new_snapshot(path);
	gpusnap_status status = GPUSNAP_E_NOMEM;

	if (!snapshot)
		return status;
	status = open_file(snapshot, NULL);
	if (!status)
		status = read_seal(snapshot, NULL);
	if (!status)
		*ret_seal = snapshot->seal;
	gpusnap_snapshot_close(snapshot);
	return status;
}

gpusnap_status gpusnap_snapshot_open_with(const char *path,
	const gpusnap_snapshot_open_options *options, gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_snapshot_open_options known;
	gpusnap_snapshot *snapshot;
	gpusnap_status status =
		gsn_options_copy(&known, sizeof known, options, "open options", err);

	if (!status)
		status = gsn_snapshot_open_link(path, &snapshot, err);
	if (status)
		return status;
	status = gsn_chain_open(snapshot, &known, err);
	if (status) {
		gpusnap_snapshot_close(snapshot);
		return status;
	}
	*out = snapshot;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_snapshot_open(const char *path, gpusnap_snapshot **out, gpusnap_error *err)
{
	return gpusnap_snapshot_open_with(path, NULL, out, err);
}

void gsn_snapshot_drop_leaves(gpusnap_snapshot *snapshot)
{
	gsn_free(snapshot->leaves);
	snapshot->leaves = NULL;
}

void gsn_snapshot_drop_plan(gpusnap_snapshot *snapshot)
{
	gsn_snapshot_drop_leaves(snapshot);
	gpusnap_plan_free(snapshot->plan);
	gpusnap_header_free(snapshot->header);
	gsn_free(snapshot->entries);
	gsn_free(snapshot->by_name);
	gsn_free(snapshot->parts);
	gsn_free(snapshot->first_part);
	snapshot->plan = NULL;
	snapshot->header = NULL;
	snapshot->entries = NULL;
	snapshot->by_name = NULL;
	snapshot->parts = NULL;
	snapshot->first_part = NULL;
}

void gpusnap_snapshot_close(gpusnap_snapshot *snapshot)
{
	if (!snapshot)
		return;
	gsn_chain_close(snapshot);
	if (snapshot->fd >= 0)
		(void)close(snapshot->fd);
	gsn_snapshot_drop_plan(snapshot);
	gsn_free(snapshot->header_bytes);
	gsn_free(snapshot->path);
	gsn_free(snapshot);
}

/* ---- looking at it ---- */

const char *gpusnap_snapshot_path(const gpusnap_snapshot *snapshot)
{
	return snapshot->path;
}

const gpusnap_seal *gpusnap_snapshot_seal(const gpusnap_snapshot *snapshot)
{
	return &snapshot->seal;
}

const gpusnap_plan *gpusnap_snapshot_plan(const gpusnap_snapshot *snapshot)
{
	return snapshot->plan;
}

size_t gpusnap_snapshot_entry_count(const gpusnap_snapshot *snapshot)
{
	return snapshot->entry_count;
}

const gpusnap_snapshot_entry *gpusnap_snapshot_entry_at(
	const gpusnap_snapshot *snapshot, size_t index)
{
	return index < snapshot->entry_count ? &snapshot->entries[index] : NULL;
}

const gpusnap_snapshot_entry *gpusnap_snapshot_entry_find(
	const gpusnap_snapshot *snapshot, const char *name)
{
	size_t low = 0, high = snapshot->entry_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const gpusnap_snapshot_entry *entry = &snapshot->entries[snapshot->by_name[middle]];
		int order = strcmp(name, entry->name);

		if (order == 0)
			return entry;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const gpusnap_digest *gpusnap_snapshot_leaves(const gpusnap_snapshot *snapshot)
{
	return snapshot->leaves;
}

size_t gpusnap_snapshot_link_count(const gpusnap_snapshot *snapshot)
{
	return snapshot->link_count;
}

const char *gpusnap_snapshot_link_path(const gpusnap_snapshot *snapshot, size_t index)
{
	return index < snapshot->link_count ? snapshot->links[index]->path : NULL;
}

const gpusnap_seal *gpusnap_snapshot_link_seal(const gpusnap_snapshot *snapshot, size_t index)
{
	return index < snapshot->link_count ? &snapshot->links[index]->seal : NULL;
}

/* ---- for jobs ---- */

gpusnap_status gsn_snapshot_reopen(const gpusnap_snapshot *snapshot, gpusnap_io_direct wanted,
	int *ret_fd, struct gsn_direct_choice *ret_choice, gpusnap_error *err)
{
	char path[32];
	gpusnap_status status;
	int fd;

	/* Through the descriptor, since the path may lead to another file by now. */
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", snapshot->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
			"'%s': cannot open it again through %s: %s", snapshot->path, path,
			strerror(errno));
	status = gsn_direct_choose(fd, snapshot->path, wanted, ret_choice, err);
	if (status) {
		(void)close(fd);
		return status;
	}
	*ret_fd = fd;
	return GPUSNAP_OK;
}

void gsn_snapshot_mark_links(const gpusnap_snapshot *snapshot, const struct gsn_segment *segments,
	size_t count, bool ret_needed[GSN_LINKS_MAX])
{
	memset(ret_needed, 0, GSN_LINKS_MAX * sizeof *ret_needed);
	for (size_t i = 0; i < count; i++)
		if (segments[i].bytes)
			ret_needed[gsn_snapshot_link_of(snapshot, segments[i].file_offset)] = true;
}

gpusnap_status gsn_snapshot_read(const gpusnap_snapshot *snapshot, uint64_t place, void *memory,
	uint64_t bytes, gpusnap_error *err)
{
	uint32_t at = gsn_snapshot_link_of(snapshot, place);
	const gpusnap_snapshot *link = snapshot->links[at];
	gpusnap_status status = read_at(link, memory, bytes, place - snapshot->bases[at], err);

	if (status)
		gsn_error_prefix(err, "'%s'", link->path);
	return status;
}

gpusnap_status gsn_snapshot_reread(const gpusnap_snapshot *snapshot, uint64_t place, void *memory,
	uint64_t bytes, gpusnap_error *err)
{
	uint32_t at = gsn_snapshot_link_of(snapshot, place);

	(void)posix_fadvise(snapshot->links[at]->fd, (off_t)(place - snapshot->bases[at]),
		(off_t)bytes, POSIX_FADV_DONTNEED);
	return gsn_snapshot_read(snapshot, place, memory, bytes, err);
}
