/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is taken as segments: header, entries, leaf table, seal. What they should be is in
 * memory as leaf digests (the writer's own for the entries), what they are is read past the page
 * cache, or after it was dropped, since the cache would only repeat what the writer put there.
 */
#include "snapshot/read_back.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "snapshot/leaf_hash.h"
#include "snapshot/reader.h"

/* Segments beside those of the entries. */
enum { HOST_SEGMENTS = 3 };

struct read_back {
	const struct gsn_read_back_job *job;
	int fd;
	struct gsn_direct_choice choice;
	struct gsn_segment *segments; /* file order */
	size_t count;
	gpusnap_digest *expected, *found;
	uint64_t leaf_count;
	struct gsn_leaf_hash hash;
	struct gsn_reader reader;
};

/* ---- what it should be ---- */

static void add_host_segment(struct read_back *back, const char *name, const uint8_t *bytes,
	uint64_t length, uint64_t file_offset)
{
	back->segments[back->count++] = (struct gsn_segment){
		.name = name,
		.bytes = length,
		.file_offset = file_offset,
		.first_leaf = back->leaf_count,
	};
	for (uint64_t at = 0; at < length; at += GPUSNAP_LEAF_BYTES)
		back->expected[back->leaf_count++] = gpusnap_digest_of(
			bytes + at, (size_t)gsn_min(GPUSNAP_LEAF_BYTES, length - at));
}

static void add_all_segments(struct read_back *back)
{
	const struct gsn_layout *layout = back->job->layout;
	gpusnap_seal seal = *back->job->seal;
	uint8_t seal_bytes[GPUSNAP_SEAL_BYTES];

	gpusnap_seal_encode(&seal, seal_bytes);
	back->leaf_count = layout->leaf_count;
	for (uint64_t i = 0; i < layout->leaf_count; i++)
		back->expected[i] = layout->leaves[i];
	add_host_segment(back, "header", layout->header, layout->header_bytes, 0);
	for (size_t i = 0; i < layout->segment_count; i++)
		back->segments[back->count++] = layout->segments[i];
	add_host_segment(back, GPUSNAP_LEAVES_NAME, (const uint8_t *)layout->leaves,
		layout->leaf_count * GPUSNAP_DIGEST_BYTES, layout->leaves_offset);
	add_host_segment(
		back, GPUSNAP_SEAL_NAME, seal_bytes, sizeof seal_bytes, layout->seal_offset);
}

static gpusnap_status expect(struct read_back *back, gpusnap_error *err)
{
	const struct gsn_layout *layout = back->job->layout;
	uint64_t leaves = layout->leaf_count + gpusnap_leaf_count(layout->header_bytes) +
			  gpusnap_leaf_count(layout->leaf_count * GPUSNAP_DIGEST_BYTES) +
			  gpusnap_leaf_count(GPUSNAP_SEAL_BYTES);

	back->segments = gsn_alloc(layout->segment_count + HOST_SEGMENTS, sizeof *back->segments);
	back->expected = gsn_alloc((size_t)leaves, sizeof *back->expected);
	back->found = gsn_alloc((size_t)leaves, sizeof *back->found);
	if (!back->segments || !back->expected || !back->found)
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"'%s': no memory to read it back: %" PRIu64 " digests", back->job->path,
			leaves);
	add_all_segments(back);
	return GPUSNAP_OK;
}

/* ---- how it is read ---- */

/* O_DIRECT also where it is not the fastest; only an explicit "off" keeps it out. */
static gpusnap_status choose_way(struct read_back *back, gpusnap_error *err)
{
	const struct gsn_read_back_job *job = back->job;
	gpusnap_io_direct wanted = job->io->direct;
	gpusnap_error refused;

	(void)job->fs->drop_cache(job->fs, back->fd); /* say_how() counts what stays */
	if (wanted != GPUSNAP_DIRECT_OFF &&
		job->fs->choose_direct(job->fs, back->fd, job->path, GPUSNAP_DIRECT_ON,
			&back->choice, &refused) == GPUSNAP_OK)
		return GPUSNAP_OK;
	return job->fs->choose_direct(job->fs, back->fd, job->path, wanted, &back->choice, err);
}

static gpusnap_status open_again(struct read_back *back, gpusnap_error *err)
{
	const struct gsn_read_back_job *job = back->job;

	back->fd = job->fs->open_again(job->fs, job->fd);
	if (back->fd < 0)
		return gsn_fail_os(err, gsn_status_from_errno(-back->fd), -back->fd,
			"'%s': cannot open it again to read it back: %s", job->path,
			strerror(-back->fd));
	return choose_way(back, err);
}

static void say_how(const struct read_back *back, char *text, size_t bytes)
{
	int percent;

	if (back->choice.direct) {
		(void)snprintf(text, bytes, "direct I/O");
		return;
	}
	percent = gsn_cached_percent(back->fd);
	if (percent == 0)
		(void)snprintf(text, bytes, "through the page cache, which was dropped before: %s",
			back->choice.why);
	else if (percent > 0)
		(void)snprintf(text, bytes,
			"through the page cache, %d%% of which could not be dropped: %s", percent,
			back->choice.why);
	else
		(void)snprintf(text, bytes,
			"through the page cache, and whether it was dropped cannot be told: %s",
			back->choice.why);
}

static gpusnap_status open_reader(struct read_back *back, gpusnap_error *err)
{
	const struct gsn_reader_file file = {
		.path = back->job->path,
		.fd = back->fd,
		.choice = &back->choice,
		.engine = back->job->fs->engine,
	};
	gpusnap_status status = gsn_leaf_hash_open(&back->hash, err);

	if (status)
		return status;
	return gsn_reader_open_file(
		&back->reader, &file, NULL, back->segments, back->count, 0, back->job->io, err);
}

static gpusnap_status hash_all(struct read_back *back, gpusnap_error *err)
{
	struct gsn_cursor hashing = {back->segments, back->count, 0, 0};
	struct gsn_block block;
	struct gsn_piece piece;
	bool more;

	for (;;) {
		gpusnap_status status = gsn_reader_next(&back->reader, &block, &more, err);

		if (status || !more)
			return status;
		while (gsn_cursor_next(&hashing, block.end, &piece))
			gsn_leaf_hash_feed(&back->hash, &piece,
				block.memory + (gsn_piece_file_offset(&piece) - block.begin),
				back->found);
		gsn_reader_release(&back->reader, block.slot);
	}
}

/* ---- the comparison ---- */

static gpusnap_status fail_leaf(const struct read_back *back, const struct gsn_segment *segment,
	uint64_t leaf, uint64_t wrong, gpusnap_error *err)
{
	uint64_t offset = segment->file_offset + leaf * GPUSNAP_LEAF_BYTES;

	return gsn_fail_at(err, GPUSNAP_E_CORRUPT, offset,
		"'%s': read back, it is not what was written: '%s', leaf %" PRIu64
		" (file offset %" PRIu64 ") and %" PRIu64
		" more leaves; it was thrown away: look at the disk, then save again",
		back->job->path, segment->name, gsn_segment_leaf(segment) + leaf, offset,
		wrong - 1);
}

static bool leaf_differs(
	const struct read_back *back, const struct gsn_segment *segment, uint64_t leaf)
{
	return !gpusnap_digest_equal(back->expected[segment->first_leaf + leaf],
		back->found[segment->first_leaf + leaf]);
}

static gpusnap_status compare(const struct read_back *back, gpusnap_error *err)
{
	const struct gsn_segment *first = NULL;
	uint64_t first_leaf = 0, wrong = 0;

	for (size_t i = 0; i < back->count; i++) {
		const struct gsn_segment *segment = &back->segments[i];

		for (uint64_t leaf = 0; leaf < gpusnap_leaf_count(segment->bytes); leaf++) {
			if (!leaf_differs(back, segment, leaf))
				continue;
			if (wrong++ == 0) {
				first = segment;
				first_leaf = leaf;
			}
		}
	}
	return wrong ? fail_leaf(back, first, first_leaf, wrong, err) : GPUSNAP_OK;
}

gpusnap_status gsn_read_back(const struct gsn_read_back_job *job,
	struct gsn_read_back_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct read_back back = {
		.job = job, .fd = -1, .hash = GSN_LEAF_HASH_INIT, .reader = GSN_READER_INIT};
	struct gsn_read_back_report report = {0};
	gpusnap_status status = expect(&back, err);

	if (!status)
		status = open_again(&back, err);
	if (!status) {
		say_how(&back, report.how, sizeof report.how);
		status = open_reader(&back, err);
	}
	if (!status)
		status = hash_all(&back, err);
	if (!status)
		status = compare(&back, err);
	gsn_reader_close(&back.reader);
	gsn_leaf_hash_close(&back.hash);
	if (back.fd >= 0)
		job->fs->close(job->fs, back.fd);
	gsn_free(back.segments);
	gsn_free(back.expected);
	gsn_free(back.found);
	if (status)
		return status;
	report.seconds = gsn_clock_seconds() - start;
	*ret_report = report;
	return GPUSNAP_OK;
}
