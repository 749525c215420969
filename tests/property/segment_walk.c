/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors over random segments: every byte once, in order, never across a block or a region. */
#include "snapshot/segment.h"

#include <string.h>

#include "snapshot/leaf_hash.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { SEGMENTS_MAX = 40, ROUNDS = 500, MEMORY_BYTES = SEGMENTS_MAX * 200000 };

struct sample {
	struct gsn_segment segments[SEGMENTS_MAX];
	size_t count;
	uint64_t leaf_count;
	uint64_t file_end;
	uint64_t block;
};

/* File gaps, memory gaps, changes of region and empty segments, all of them often. */
static struct sample make_sample(uint64_t *random, uint64_t base)
{
	struct sample sample = {.count = random_below(random, SEGMENTS_MAX + 1)};
	uint64_t file = random_below(random, 10000), address = base;
	uint32_t region = 1;

	for (size_t i = 0; i < sample.count; i++) {
		uint64_t bytes = random_below(random, 4) ? random_below(random, 150000) : 0;

		file += random_below(random, 3) ? 0 : random_below(random, 9000);
		address += random_below(random, 3) ? 0 : random_below(random, 5000);
		region += random_below(random, 5) == 0;
		sample.segments[i] = (struct gsn_segment){
			.region = region,
			.address = address,
			.bytes = bytes,
			.file_offset = file,
			.first_leaf = sample.leaf_count,
		};
		file += bytes;
		address += bytes;
		sample.leaf_count += gpusnap_leaf_count(bytes);
	}
	sample.file_end = file;
	sample.block = 4096 * (1 + random_below(random, 40));
	return sample;
}

START_TEST(pieces_cover_every_byte_once_and_end_at_blocks)
{
	uint64_t random = random_seed(71);

	for (int round = 0; round < ROUNDS; round++) {
		struct sample sample = make_sample(&random, 0);
		struct gsn_cursor cursor = {sample.segments, sample.count, 0, 0};
		uint64_t covered[SEGMENTS_MAX] = {0}, begin, last = 0;
		struct gsn_piece piece;

		for (uint64_t end = sample.block; end < sample.file_end + sample.block;
			end += sample.block) {
			while (gsn_cursor_next(&cursor, end, &piece)) {
				size_t i = (size_t)(piece.segment - sample.segments);

				begin = gsn_piece_file_offset(&piece);
				ck_assert_uint_eq(piece.offset, covered[i]);
				ck_assert_uint_gt(piece.bytes, 0);
				ck_assert_uint_ge(begin, last);
				ck_assert_uint_ge(begin, end - sample.block);
				ck_assert_uint_le(begin + piece.bytes, end);
				covered[i] += piece.bytes;
				last = begin + piece.bytes;
			}
		}
		ck_assert(!gsn_cursor_peek(&cursor, &begin));
		for (size_t i = 0; i < sample.count; i++)
			ck_assert_uint_eq(covered[i], sample.segments[i].bytes);
	}
}
END_TEST

/* The next pieces, put together, are this run, and all of one region. */
static void check_run(struct gsn_cursor *by_piece, uint64_t end, const struct gsn_run *run)
{
	struct gsn_piece piece;
	uint64_t done = 0;
	uint32_t region = 0;

	while (done < run->bytes) {
		ck_assert(gsn_cursor_next(by_piece, end, &piece));
		ck_assert(done == 0 || piece.segment->region == region);
		region = piece.segment->region;
		ck_assert_uint_eq(gsn_piece_file_offset(&piece), run->file_offset + done);
		ck_assert_uint_eq(piece.segment->address + piece.offset, run->address + done);
		done += piece.bytes;
	}
	ck_assert_uint_eq(done, run->bytes);
}

static void check_runs(const struct sample *sample)
{
	struct gsn_cursor by_run = {sample->segments, sample->count, 0, 0}, by_piece = by_run;

	for (uint64_t end = sample->block; end < sample->file_end + sample->block;
		end += sample->block) {
		struct gsn_piece piece;
		struct gsn_run run;

		while (gsn_cursor_next_run(&by_run, end, &run))
			check_run(&by_piece, end, &run);
		ck_assert(!gsn_cursor_next(&by_piece, end, &piece));
	}
}

START_TEST(runs_are_pieces_that_are_neighbours_in_file_and_memory)
{
	uint64_t random = random_seed(73);

	for (int round = 0; round < ROUNDS; round++) {
		struct sample sample = make_sample(&random, UINT64_C(1) << 32);

		check_runs(&sample);
	}
}
END_TEST

START_TEST(neighbours_make_one_run)
{
	const struct gsn_segment segments[] = {
		{.region = 1, .address = 1000, .bytes = 50, .file_offset = 4096},
		{.region = 1, .address = 1050, .bytes = 0, .file_offset = 4146},
		{.region = 1, .address = 1050, .bytes = 100, .file_offset = 4146},
		{.region = 2, .address = 1150, .bytes = 10, .file_offset = 4246},
	};
	struct gsn_cursor cursor = {segments, 4, 0, 0};
	struct gsn_run run;

	ck_assert(gsn_cursor_next_run(&cursor, 8192, &run));
	ck_assert_uint_eq(run.bytes, 150);
	ck_assert(gsn_cursor_next_run(&cursor, 8192, &run));
	ck_assert_uint_eq(run.address, 1150);
	ck_assert(!gsn_cursor_next_run(&cursor, 8192, &run));
}
END_TEST

START_TEST(leaves_of_passing_pieces_are_those_of_the_whole)
{
	uint64_t random = random_seed(79);
	uint8_t *memory = malloc(MEMORY_BYTES);
	gpusnap_error err;

	random_fill(&random, memory, MEMORY_BYTES);
	for (int round = 0; round < ROUNDS / 20; round++) {
		struct sample sample = make_sample(&random, (uint64_t)(uintptr_t)memory);
		struct gsn_cursor cursor = {sample.segments, sample.count, 0, 0};
		gpusnap_digest *leaves = calloc(sample.leaf_count + 1, sizeof *leaves);
		struct gsn_leaf_hash hash = GSN_LEAF_HASH_INIT;
		struct gsn_piece piece;

		ck_ok(gsn_leaf_hash_open(&hash, &err));
		for (uint64_t end = sample.block; end < sample.file_end + sample.block;
			end += sample.block)
			while (gsn_cursor_next(&cursor, end, &piece))
				gsn_leaf_hash_feed(&hash, &piece,
					(const uint8_t *)(uintptr_t)(piece.segment->address +
								     piece.offset),
					leaves);
		for (size_t i = 0; i < sample.count; i++) {
			const struct gsn_segment *segment = &sample.segments[i];

			for (uint64_t at = 0; at < segment->bytes; at += GPUSNAP_LEAF_BYTES) {
				uint64_t rest = segment->bytes - at;
				gpusnap_digest expected = gpusnap_digest_of(
					(const uint8_t *)(uintptr_t)(segment->address + at),
					rest < GPUSNAP_LEAF_BYTES ? rest : GPUSNAP_LEAF_BYTES);

				ck_assert(gpusnap_digest_equal(expected,
					leaves[segment->first_leaf + at / GPUSNAP_LEAF_BYTES]));
			}
		}
		gsn_leaf_hash_close(&hash);
		free(leaves);
	}
	free(memory);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		pieces_cover_every_byte_once_and_end_at_blocks,
		runs_are_pieces_that_are_neighbours_in_file_and_memory,
		neighbours_make_one_run,
		leaves_of_passing_pieces_are_those_of_the_whole,
	};

	return RUN_SUITE("segment_walk", tests);
}
