/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flattening a chain: leaves are read file by file, in the order in which they lie there, digested,
 * and written to where a full snapshot has them. The new file comes to its name when all have been
 * proved.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/chain.h"
#include "snapshot/commit.h"
#include "snapshot/io_options.h"
#include "snapshot/leaf_hash.h"
#include "snapshot/reader.h"

enum { DATA_ALIGNMENT = 4096, END_TENSORS = 2 };

struct flatten {
	const gpusnap_snapshot *snapshot;
	gpusnap_flatten_options options;
	gpusnap_io_options io;
	const char *path;
	uint8_t *header;
	uint64_t header_bytes;
	uint64_t data_bytes;
	gpusnap_seal seal;
	struct gsn_segment *segments; /* by place; their address is an offset in the new file */
	size_t segment_count;
	gpusnap_digest *found;
	struct gsn_leaf_hash hash;
	struct gsn_reader reader;
	struct gsn_commit commit;
};

/* ---- what the new file is ---- */

static void add_tensor(gpusnap_tensor *tensor, const char *name, gpusnap_dtype dtype, uint32_t rank,
	const uint64_t *shape, uint64_t begin, uint64_t bytes)
{
	*tensor = (gpusnap_tensor){
		.name = name,
		.name_length = strlen(name),
		.dtype = dtype,
		.rank = rank,
		.shape = shape,
		.begin = begin,
		.end = begin + bytes,
	};
}

static gpusnap_status build_header(
	struct flatten *f, gpusnap_tensor *tensors, const char *plan, gpusnap_error *err)
{
	const gpusnap_snapshot *snapshot = f->snapshot;
	const uint64_t leaves_shape[2] = {snapshot->seal.leaf_count, GPUSNAP_DIGEST_BYTES};
	const uint64_t seal_shape[1] = {GPUSNAP_SEAL_BYTES};
	const gpusnap_metadata metadata = {GPUSNAP_PLAN_KEY, plan};
	uint64_t leaves_bytes = leaves_shape[0] * GPUSNAP_DIGEST_BYTES;
	size_t count = snapshot->entry_count;

	for (size_t i = 0; i < count; i++) {
		const gpusnap_snapshot_entry *entry = &snapshot->entries[i];

		add_tensor(&tensors[i], entry->name, entry->dtype, entry->rank, entry->shape,
			f->data_bytes, entry->bytes);
		f->data_bytes += entry->bytes;
	}
	add_tensor(&tensors[count], GPUSNAP_LEAVES_NAME, GPUSNAP_U8, 2, leaves_shape, f->data_bytes,
		leaves_bytes);
	add_tensor(&tensors[count + 1], GPUSNAP_SEAL_NAME, GPUSNAP_U8, 1, seal_shape,
		f->data_bytes + leaves_bytes, GPUSNAP_SEAL_BYTES);
	return gpusnap_header_build(tensors, count + END_TENSORS, &metadata, 1, DATA_ALIGNMENT,
		&f->header, &f->header_bytes, err);
}

/* The delta's plan, but for what makes it one. */
static gpusnap_status make_header(struct flatten *f, gpusnap_error *err)
{
	gpusnap_plan plan = *f->snapshot->plan;
	gpusnap_tensor *tensors =
		gsn_alloc(f->snapshot->entry_count + END_TENSORS, sizeof *tensors);
	gpusnap_status status;
	char *text;

	plan.delta = NULL;
	text = gpusnap_plan_encode(&plan);
	status = tensors && text
			 ? build_header(f, tensors, text, err)
			 : gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a plan of %zu entries",
				   f->snapshot->entry_count);
	gpusnap_text_free(text);
	gsn_free(tensors);
	return status;
}

static void make_seal(struct flatten *f)
{
	const gpusnap_seal *delta = &f->snapshot->seal;

	f->seal = (gpusnap_seal){
		.version = GPUSNAP_FORMAT_VERSION,
		.header = gpusnap_digest_of(f->header, (size_t)f->header_bytes),
		.leaves = delta->leaves,
		.file_bytes = f->header_bytes + f->data_bytes +
			      delta->leaf_count * GPUSNAP_DIGEST_BYTES + GPUSNAP_SEAL_BYTES,
		.header_bytes = f->header_bytes,
		.leaf_count = delta->leaf_count,
	};
	memcpy(f->seal.uuid, delta->uuid, sizeof f->seal.uuid);
}

static gpusnap_status list_segments(struct flatten *f, gpusnap_error *err)
{
	const gpusnap_snapshot *snapshot = f->snapshot;
	uint64_t offset = f->header_bytes;

	f->segment_count = snapshot->part_count;
	f->segments = gsn_alloc(f->segment_count, sizeof *f->segments);
	f->found = gsn_alloc((size_t)snapshot->seal.leaf_count, sizeof *f->found);
	if (!f->segments || !f->found)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu segments", f->segment_count);
	for (size_t i = 0; i < f->segment_count; i++) {
		f->segments[i] = gsn_snapshot_segment(snapshot, i);
		f->segments[i].address = offset;
		offset += f->segments[i].bytes;
	}
	qsort(f->segments, f->segment_count, sizeof *f->segments, gsn_compare_places);
	return GPUSNAP_OK;
}

/* ---- writing ---- */

static gpusnap_status put(const struct flatten *f, const void *bytes, uint64_t length,
	uint64_t offset, gpusnap_error *err)
{
	const uint8_t *at = bytes;

	while (length) {
		ssize_t moved = pwrite(f->commit.fd, at, (size_t)length, (off_t)offset);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
				"'%s': write at %" PRIu64 ": %s", f->path, offset, strerror(errno));
		at += moved;
		offset += (uint64_t)moved;
		length -= (uint64_t)moved;
	}
	return GPUSNAP_OK;
}

static gpusnap_status put_block(struct flatten *f, struct gsn_cursor *writing,
	const struct gsn_block *block, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	struct gsn_run run;

	while (!status && gsn_cursor_next_run(writing, block->end, &run))
		status = put(f, block->memory + (run.file_offset - block->begin), run.bytes,
			run.address, err);
	return status;
}

static void hash_block(struct flatten *f, struct gsn_cursor *hashing, const struct gsn_block *block)
{
	struct gsn_piece piece;

	while (gsn_cursor_next(hashing, block->end, &piece))
		gsn_leaf_hash_feed(&f->hash, &piece,
			block->memory + (gsn_piece_file_offset(&piece) - block->begin), f->found);
}

static gpusnap_status copy_data(struct flatten *f, gpusnap_error *err)
{
	struct gsn_cursor writing = {f->segments, f->segment_count, 0, 0};
	struct gsn_cursor hashing = writing;
	struct gsn_block block;
	bool more;

	for (;;) {
		gpusnap_status status = gsn_reader_next(&f->reader, &block, &more, err);

		if (status || !more)
			return status;
		hash_block(f, &hashing, &block);
		status = put_block(f, &writing, &block, err);
		gsn_reader_release(&f->reader, block.slot);
		if (status)
			return status;
	}
}

static gpusnap_status put_end(struct flatten *f, gpusnap_error *err)
{
	uint8_t seal[GPUSNAP_SEAL_BYTES];
	uint64_t leaves_bytes = f->seal.leaf_count * GPUSNAP_DIGEST_BYTES;
	gpusnap_status status = put(f, f->header, f->header_bytes, 0, err);

	gpusnap_seal_encode(&f->seal, seal);
	if (!status)
		status = put(
			f, f->snapshot->leaves, leaves_bytes, f->header_bytes + f->data_bytes, err);
	return status ? status : put(f, seal, sizeof seal, f->seal.file_bytes - sizeof seal, err);
}

/* ---- proof ---- */

/* Once more from the file: a fault on the way may have been a passing one. */
static gpusnap_status repeat_leaf(
	struct flatten *f, const struct gsn_segment *segment, uint64_t leaf, gpusnap_error *err)
{
	uint64_t start = leaf * GPUSNAP_LEAF_BYTES;
	uint64_t bytes = gsn_min(GPUSNAP_LEAF_BYTES, segment->bytes - start);
	uint8_t *memory = gsn_staging_slot(&f->reader.staging, 0);
	gpusnap_digest expected = f->snapshot->leaves[segment->first_leaf + leaf];
	struct gsn_location at = gsn_snapshot_locate(f->snapshot, segment->file_offset + start);
	gpusnap_status status =
		gsn_snapshot_reread(f->snapshot, segment->file_offset + start, memory, bytes, err);

	if (status)
		return status;
	if (!gpusnap_digest_equal(gpusnap_digest_of(memory, (size_t)bytes), expected))
		return gsn_fail_at(err, GPUSNAP_E_CORRUPT, at.offset,
			"'%s': buffer '%s' leaf %" PRIu64 " (file offset %" PRIu64
			") does not match its digest, read twice",
			at.path, segment->name, gsn_segment_leaf(segment) + leaf, at.offset);
	return put(f, memory, bytes, segment->address + start, err);
}

static gpusnap_status prove(struct flatten *f, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct gsn_segment *segment = &f->segments[i];
		uint64_t count = gpusnap_leaf_count(segment->bytes);

		for (uint64_t k = 0; !status && k < count; k++)
			if (!gpusnap_digest_equal(f->found[segment->first_leaf + k],
				    f->snapshot->leaves[segment->first_leaf + k]))
				status = repeat_leaf(f, segment, k, err);
	}
	return status;
}

/* ---- the job ---- */

static gpusnap_status flatten_open(struct flatten *f, gpusnap_error *err)
{
	gpusnap_status status = make_header(f, err);

	if (status)
		return status;
	make_seal(f);
	status = list_segments(f, err);
	if (!status)
		status = gsn_leaf_hash_open(&f->hash, err);
	if (status)
		return status;
	return gsn_reader_open(
		&f->reader, f->snapshot, NULL, f->segments, f->segment_count, 0, &f->io, err);
}

/* The delta itself may be replaced by what it stands for, a parent may not. */
static gpusnap_status check_target(const struct flatten *f, gpusnap_error *err)
{
	const struct gsn_commit *commit = &f->commit;
	struct stat target;

	if (commit->fs->status_at(commit->fs, commit->directory_fd, commit->name, &target))
		return GPUSNAP_OK;
	return gsn_chain_guard(f->snapshot, 1, &target, f->path, err);
}

static gpusnap_status write_file(struct flatten *f, gpusnap_error *err)
{
	gpusnap_status status = gsn_commit_begin(
		&f->commit, &gsn_fs_posix, f->path, f->options.replace, f->seal.file_bytes, err);

	if (!status)
		status = check_target(f, err);
	if (!status)
		status = copy_data(f, err);
	if (!status)
		status = prove(f, err);
	if (!status)
		status = put_end(f, err);
	return status ? status : gsn_commit_finish(&f->commit, f->seal.file_bytes, err);
}

static void flatten_close(struct flatten *f)
{
	gsn_commit_end(&f->commit);
	gsn_reader_close(&f->reader);
	gsn_leaf_hash_close(&f->hash);
	gpusnap_header_bytes_free(f->header);
	gsn_free(f->segments);
	gsn_free(f->found);
}

gpusnap_status gpusnap_snapshot_flatten(gpusnap_snapshot *snapshot, const char *path,
	const gpusnap_flatten_options *options, gpusnap_flatten_report *ret_report,
	gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct flatten f = {
		.snapshot = snapshot,
		.path = path,
		.hash = GSN_LEAF_HASH_INIT,
		.reader = GSN_READER_INIT,
		.commit = GSN_COMMIT_INIT,
	};
	gpusnap_status status =
		gsn_options_copy(&f.options, sizeof f.options, options, "flatten options", err);

	if (!status)
		status = gsn_io_options_resolve(&f.options.io, &f.io, err);
	if (!status)
		status = flatten_open(&f, err);
	if (!status)
		status = write_file(&f, err);
	if (!status && ret_report) {
		*ret_report = (gpusnap_flatten_report){.io = f.reader.report, .root = f.seal.root};
		ret_report->io.bytes = f.seal.file_bytes;
		ret_report->io.seconds = gsn_clock_seconds() - start;
	}
	flatten_close(&f);
	return status;
}
