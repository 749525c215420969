/* SPDX-License-Identifier: Apache-2.0 */
/* Spans hold every byte once, whole leaves, one file; whatever the segments. */
#include "snapshot/span.h"

#include "formats/base/bytes.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

enum { SEGMENTS_MAX = 40, ROUNDS = 2000 };

struct scene {
	gpusnap_snapshot snapshot; /* two files; the second begins where the first ends */
	struct gsn_segment segments[SEGMENTS_MAX];
	size_t count;
	uint64_t bytes, end;
};

/* Sizes around nothing, a few bytes, a leaf and several; with and without gaps. */
static uint64_t random_size(uint64_t *random)
{
	switch (random_below(random, 4)) {
	case 0:
		return random_below(random, 100);
	case 1:
		return random_below(random, 3) * LEAF;
	default:
		return random_below(random, 7 * LEAF);
	}
}

static void scene_init(struct scene *scene, uint64_t *random)
{
	uint64_t at = 4096, split = random_below(random, SEGMENTS_MAX);

	*scene = (struct scene){.count = 1 + random_below(random, SEGMENTS_MAX)};
	scene->snapshot.link_count = 2;
	scene->snapshot.bases[1] = UINT64_MAX;
	for (size_t i = 0; i < scene->count; i++) {
		at += random_below(random, 3) ? 0 : random_below(random, 3 * LEAF);
		if (i == split)
			scene->snapshot.bases[1] = at;
		scene->segments[i].file_offset = at;
		scene->segments[i].bytes = random_size(random);
		at += scene->segments[i].bytes;
		scene->bytes += scene->segments[i].bytes;
	}
	scene->end = at;
}

/* Whole leaves, but where `limit` cuts; the bytes of the span that are segments'. */
static uint64_t check_pieces(const struct gsn_span *span, uint64_t limit)
{
	struct gsn_cursor cursor = span->from;
	struct gsn_piece piece;
	uint64_t bytes = 0;

	while (gsn_cursor_next(&cursor, span->end, &piece)) {
		uint64_t end = piece.offset + piece.bytes;

		ck_assert_uint_ge(gsn_piece_file_offset(&piece), span->begin);
		ck_assert(end % LEAF == 0 || end == piece.segment->bytes ||
			  gsn_piece_file_offset(&piece) + piece.bytes == limit);
		bytes += piece.bytes;
	}
	return bytes;
}

static uint64_t cut(const struct scene *scene, struct gsn_cursor *cursor, uint64_t limit,
	uint64_t most, uint64_t *behind)
{
	const gpusnap_snapshot *snapshot = &scene->snapshot;
	struct gsn_span span;
	uint64_t bytes = 0;

	while (gsn_span_next(snapshot, cursor, limit, most, &span)) {
		ck_assert_uint_ge(span.begin, *behind);
		ck_assert_uint_gt(span.end, span.begin);
		ck_assert_uint_le(span.end - span.begin, most);
		ck_assert_uint_le(span.end, limit);
		ck_assert_uint_eq(gsn_snapshot_link_of(snapshot, span.begin),
			gsn_snapshot_link_of(snapshot, span.end - 1));
		bytes += check_pieces(&span, limit);
		*behind = span.end;
	}
	return bytes;
}

START_TEST(every_byte_is_in_one_span)
{
	uint64_t random = random_seed(3);

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t most = LEAF << random_below(&random, 3), behind = 0;
		struct gsn_cursor cursor;
		struct scene scene;

		scene_init(&scene, &random);
		cursor = (struct gsn_cursor){scene.segments, scene.count, 0, 0};
		ck_assert_uint_eq(cut(&scene, &cursor, UINT64_MAX, most, &behind), scene.bytes);
		ck_assert_uint_le(behind, scene.end);
	}
}
END_TEST

START_TEST(every_byte_is_in_one_span_of_one_block)
{
	uint64_t random = random_seed(4);

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t most = LEAF << random_below(&random, 3), behind = 0, bytes = 0;
		uint64_t block = LEAF * (1 + random_below(&random, 5));
		struct gsn_cursor cursor;
		struct scene scene;

		scene_init(&scene, &random);
		cursor = (struct gsn_cursor){scene.segments, scene.count, 0, 0};
		for (uint64_t limit = block; limit < scene.end + block; limit += block)
			bytes += cut(&scene, &cursor, limit, most, &behind);
		ck_assert_uint_eq(bytes, scene.bytes);
	}
}
END_TEST

START_TEST(small_neighbours_share_a_span_and_distant_ones_do_not)
{
	struct gsn_segment segments[] = {
		{.file_offset = 4096, .bytes = 1000},
		{.file_offset = 5096, .bytes = 100},
		{.file_offset = 4096 + LEAF, .bytes = 10},
	};
	struct gsn_cursor cursor = {segments, 3, 0, 0};
	gpusnap_snapshot snapshot = {.link_count = 1};
	struct gsn_span span;

	ck_assert(gsn_span_next(&snapshot, &cursor, UINT64_MAX, LEAF, &span));
	ck_assert_uint_eq(span.begin, 4096);
	ck_assert_uint_eq(span.end, 5196);
	ck_assert(gsn_span_next(&snapshot, &cursor, UINT64_MAX, LEAF, &span));
	ck_assert_uint_eq(span.begin, 4096 + LEAF);
	ck_assert(!gsn_span_next(&snapshot, &cursor, UINT64_MAX, LEAF, &span));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_byte_is_in_one_span,
		every_byte_is_in_one_span_of_one_block,
		small_neighbours_share_a_span_and_distant_ones_do_not,
	};

	return RUN_SUITE("span_cutting", tests);
}
