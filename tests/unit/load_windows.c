/* SPDX-License-Identifier: Apache-2.0 */
/* Views, the compaction test, windows and reads: geometry without files. */
#include "loader/load_plan.h"

#include "formats/base/bytes.h"
#include "loader/cached_reads.h"
#include "loader/compact.h"
#include "loader/gather.h"
#include "loader/parallel.h"
#include "loader/ring_reads.h"
#include "tests/support/plan_run.h"
#include "tests/support/random.h"

enum { FILE_BYTES = 1 << 20 };

static uint8_t file[FILE_BYTES];
static const uint8_t *const shards[] = {file};

static void fill_file(void)
{
	uint64_t seed = 7;

	random_fill(&seed, file, sizeof file);
}

static struct gsn_view placed(struct gsn_view view, uint64_t storage, uint64_t target)
{
	view.storage = storage;
	view.target = target;
	return view;
}

/* ---- compaction ---- */

START_TEST(compaction_test_has_two_parts)
{
	struct gsn_view whole = placed(gsn_view_bytes(0, 100, 4096), 4096, 0);
	struct gsn_view rows = placed(gsn_view_rows(0, 100, 8, 512, 512), 8192, 0);
	struct gsn_view columns = placed(gsn_view_rows(0, 100, 8, 256, 512), 4096, 0);

	ck_assert(!gsn_view_needs_compaction(&whole));
	ck_assert(gsn_view_is_contiguous(&rows));
	ck_assert(gsn_view_needs_compaction(&rows)); /* contiguous, of a larger storage */
	ck_assert(!gsn_view_is_contiguous(&columns));
	ck_assert(gsn_view_needs_compaction(&columns));
	ck_assert(gsn_compact_applies(GPUSNAP_COMPACT_ALWAYS, &whole));
	ck_assert(!gsn_compact_applies(GPUSNAP_COMPACT_AUTO, &whole));
	ck_assert(gsn_compact_applies(GPUSNAP_COMPACT_AUTO, &rows));
	ck_assert(!gsn_compact_applies(GPUSNAP_COMPACT_NEVER, &rows));
}
END_TEST

START_TEST(compaction_names_are_parsed)
{
	gpusnap_compact compact;
	gpusnap_error err;

	ck_ok(gpusnap_compact_parse("never", &compact, &err));
	ck_assert_int_eq(compact, GPUSNAP_COMPACT_NEVER);
	ck_ok(gpusnap_compact_parse("auto", &compact, &err));
	ck_assert_int_eq(compact, GPUSNAP_COMPACT_AUTO);
	ck_ok(gpusnap_compact_parse("always", &compact, &err));
	ck_assert_int_eq(compact, GPUSNAP_COMPACT_ALWAYS);
	ck_fails(gpusnap_compact_parse("Auto", &compact, &err), GPUSNAP_E_INVALID, "'Auto'");
}
END_TEST

/* ---- windows ---- */

/* Two neighbouring tensors of 64 KiB each, in reverse order at the target. */
START_TEST(one_window_is_one_copy_and_never_is_one_a_view)
{
	struct gsn_view views[] = {
		placed(gsn_view_bytes(0, 65536, 65536), 65536, 0),
		placed(gsn_view_bytes(0, 0, 65536), 65536, 65536),
	};
	struct gsn_plan_limits limits = {1 << 20, 1 << 20, GPUSNAP_COMPACT_AUTO};
	uint8_t *targets = calloc(2, 65536);
	struct plan_totals totals;

	ck_assert_ptr_nonnull(targets);
	totals = plan_run(views, 2, &limits, shards, targets, 131072);
	ck_assert_uint_eq(totals.windows, 1);
	ck_assert_uint_eq(totals.reads, 1); /* neighbours in the file are read at once */
	ck_assert_uint_eq(totals.direct_reads, 0);
	ck_assert_mem_eq(targets, file + 65536, 65536);
	ck_assert_mem_eq(targets + 65536, file, 65536);
	limits.compact = GPUSNAP_COMPACT_NEVER;
	totals = plan_run(views, 2, &limits, shards, targets, 131072);
	ck_assert_uint_eq(totals.windows, 2);
	ck_assert_uint_eq(totals.direct_reads, 2);
	free(targets);
}
END_TEST

/* In the file's order whole tensors need no gathering. */
START_TEST(whole_tensors_in_order_are_read_directly)
{
	struct gsn_view views[] = {
		placed(gsn_view_bytes(0, 4096, 4096), 4096, 0),
		placed(gsn_view_bytes(0, 8192, 8192), 8192, 4096),
	};
	struct gsn_plan_limits limits = {1 << 20, 1 << 20, GPUSNAP_COMPACT_AUTO};
	uint8_t targets[12288];
	struct plan_totals totals;

	totals = plan_run(views, 2, &limits, shards, targets, sizeof targets);
	ck_assert_uint_eq(totals.reads, 1);
	ck_assert_uint_eq(totals.direct_reads, 1);
	ck_assert_mem_eq(targets, file + 4096, sizeof targets);
	limits.compact = GPUSNAP_COMPACT_ALWAYS;
	totals = plan_run(views, 2, &limits, shards, targets, sizeof targets);
	ck_assert_uint_eq(totals.direct_reads, 0);
}
END_TEST

START_TEST(views_larger_than_slot_and_read_are_cut)
{
	struct gsn_view view = placed(gsn_view_bytes(0, 1000, 100000), 100000, 0);
	struct gsn_plan_limits limits = {32768, 8192, GPUSNAP_COMPACT_AUTO};
	uint8_t *targets = calloc(100000, 1);
	struct plan_totals totals;

	ck_assert_ptr_nonnull(targets);
	totals = plan_run(&view, 1, &limits, shards, targets, 100000);
	ck_assert_uint_eq(totals.windows, 4);
	ck_assert_uint_eq(totals.bytes_read, 100000);
	ck_assert_mem_eq(targets, file + 1000, 100000);
	free(targets);
}
END_TEST

/* ---- how much is read ---- */

static struct plan_totals run_columns(uint64_t rows, uint64_t run, uint64_t stride)
{
	struct gsn_view view = placed(gsn_view_rows(0, 64, rows, run, stride), rows * stride, 0);
	struct gsn_plan_limits limits = {1 << 20, 1 << 20, GPUSNAP_COMPACT_AUTO};
	uint8_t *targets = malloc(rows * run);
	struct plan_totals totals;

	ck_assert_ptr_nonnull(targets);
	totals = plan_run(&view, 1, &limits, shards, targets, rows * run);
	for (uint64_t r = 0; r < rows; r++)
		ck_assert_mem_eq(targets + r * run, file + 64 + r * stride, run);
	free(targets);
	return totals;
}

START_TEST(columns_are_read_at_most_twice_over_where_pages_can_be_skipped)
{
	/* Half of each row: everything between first and last is read. */
	struct plan_totals totals = run_columns(8, 10000, 20000);

	ck_assert_uint_eq(totals.reads, 1);
	ck_assert_uint_le(totals.bytes_read, 160000);
	/* A quarter of each row, gaps of several pages: row by row. */
	totals = run_columns(8, 10000, 40000);
	ck_assert_uint_eq(totals.reads, 8);
	ck_assert_uint_eq(totals.bytes_read, 80000);
	/* A quarter, gaps within a page: storage would read them anyway. */
	totals = run_columns(8, 1000, 4000);
	ck_assert_uint_eq(totals.reads, 1);
	ck_assert_uint_eq(totals.bytes_read, 29000);
}
END_TEST

static struct plan_totals run_pair(uint64_t bytes, uint64_t gap)
{
	struct gsn_view views[] = {
		placed(gsn_view_bytes(0, 0, bytes), 2 * bytes, 0),
		placed(gsn_view_bytes(0, bytes + gap, bytes), 2 * bytes, bytes),
	};
	struct gsn_plan_limits limits = {1 << 20, 1 << 20, GPUSNAP_COMPACT_AUTO};
	uint8_t *targets = malloc(2 * bytes);
	struct plan_totals totals;

	ck_assert_ptr_nonnull(targets);
	totals = plan_run(views, 2, &limits, shards, targets, 2 * bytes);
	ck_assert_mem_eq(targets + bytes, file + bytes + gap, bytes);
	free(targets);
	return totals;
}

START_TEST(rows_are_merged_within_a_tenth_of_over_read)
{
	ck_assert_uint_eq(run_pair(100000, 0).reads, 1);
	ck_assert_uint_eq(run_pair(100000, 20000).reads, 1); /* exactly 1.1 */
	ck_assert_uint_eq(run_pair(100000, 20001).reads, 2);
	ck_assert_uint_eq(run_pair(1000, 4095).reads, 1); /* within a page */
	ck_assert_uint_eq(run_pair(1000, 4096).reads, 2);
}
END_TEST

/* What columns may waste is theirs: the rows beside them are not read over. */
START_TEST(columns_do_not_widen_the_reads_of_rows)
{
	struct gsn_view views[] = {
		placed(gsn_view_rows(0, 0, 20, 5000, 10000), 200000, 0),
		placed(gsn_view_bytes(0, 200000, 50000), 100000, 100000),
		placed(gsn_view_bytes(0, 300000, 50000), 100000, 150000),
	};
	struct gsn_plan_limits limits = {1 << 20, 1 << 20, GPUSNAP_COMPACT_AUTO};
	uint8_t *targets = malloc(200000);
	struct plan_totals totals;

	ck_assert_ptr_nonnull(targets);
	totals = plan_run(views, 3, &limits, shards, targets, 200000);
	ck_assert_uint_eq(totals.reads, 2); /* 5000 bytes between are a tenth, 50000 are not */
	ck_assert_uint_eq(totals.bytes_read, 250000 + 50000);
	free(targets);
}
END_TEST

/* ---- scales and memory ---- */

static float scale_at(const float *scales, uint64_t row, uint64_t column)
{
	return scales[row * 5 + column];
}

START_TEST(scales_are_spread_over_the_finer_grid)
{
	float scales[3 * 5], out[7 * 9], expected[7 * 9];
	const uint8_t *const shard[] = {(const uint8_t *)scales};
	/* Blocks of the rank are a quarter of a source row's and a half of a column's. */
	struct gsn_view view = {
		.kind = GSN_VIEW_SCALE,
		.storage = sizeof scales,
		.count = {1, 7, 9},
		.stride = {0, 5 * sizeof(float), sizeof(float)},
		.run = sizeof(float),
		.scale = {GPUSNAP_F32, 4, 2, 3, 1},
	};

	for (int i = 0; i < 15; i++)
		scales[i] = (float)i;
	for (uint64_t r = 0; r < 7; r++)
		for (uint64_t c = 0; c < 9; c++)
			expected[r * 9 + c] = scale_at(scales, (r + 3) / 4, (c + 1) / 2);
	for (uint64_t slot = 8; slot <= 512; slot *= 4) { /* whole, and cut in many ways */
		struct gsn_plan_limits limits = {slot, slot, GPUSNAP_COMPACT_AUTO};

		memset(out, 0xa5, sizeof out);
		(void)plan_run(&view, 1, &limits, shard, (uint8_t *)out, sizeof out);
		ck_assert_mem_eq(out, expected, sizeof out);
	}
}
END_TEST

START_TEST(strided_views_of_three_dimensions_are_gathered)
{
	/* A transposed matrix of 2-byte elements, every second column: out[i][j] = in[j][2 i]. */
	struct gsn_view view = {
		.kind = GSN_VIEW_COPY,
		.source = 10,
		.storage = 4800,
		.count = {1, 30, 40},
		.stride = {0, 4, 120},
		.run = 2,
	};
	uint8_t out[30 * 40 * 2];

	for (uint64_t slot = 64; slot <= 8192; slot *= 2) {
		struct gsn_plan_limits limits = {slot, slot, GPUSNAP_COMPACT_AUTO};
		uint64_t wrong = 0;

		memset(out, 0, sizeof out);
		(void)plan_run(&view, 1, &limits, shards, out, sizeof out);
		for (size_t i = 0; i < 30; i++)
			for (size_t j = 0; j < 40; j++)
				wrong += memcmp(out + 2 * (i * 40 + j),
						 file + 10 + 2 * (j * 60 + 2 * i), 2) != 0;
		ck_assert_uint_eq(wrong, 0);
	}
}
END_TEST

/* ---- transposed matrices ---- */

enum { T_ROWS = 70, T_COLUMNS = 90, T_PITCH = 2 * T_COLUMNS + 12, T_STRIDE = 4 * T_ROWS };

/* Every second column of [T_COLUMNS, 2 * T_ROWS], transposed, each row with 12 bytes after it. */
static struct gsn_view transposed_view(void)
{
	return (struct gsn_view){
		.kind = GSN_VIEW_TRANSPOSE,
		.source = 6,
		.storage = 2ull * T_STRIDE * T_COLUMNS,
		.count = {1, T_ROWS, T_COLUMNS},
		.stride = {0, 4, T_STRIDE},
		.run = 2,
		.pad = 12,
		.fill = 0x04030201,
		.pitch = T_PITCH,
		.claim = T_ROWS * T_PITCH,
	};
}

static uint64_t wrong_transposed(const uint8_t *out)
{
	static const uint8_t padding[12] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
	uint64_t wrong = 0;

	for (size_t r = 0; r < T_ROWS; r++) {
		for (size_t c = 0; c < T_COLUMNS; c++)
			wrong += memcmp(out + r * T_PITCH + 2 * c, file + 6 + c * T_STRIDE + 4 * r,
					 2) != 0;
		wrong += memcmp(out + r * T_PITCH + 2ull * T_COLUMNS, padding, 12) != 0;
	}
	return wrong;
}

/* Runs of some lengths are copied by code of their own. */
START_TEST(runs_of_every_length_are_gathered)
{
	enum { RUNS = 5, LONGEST = 130, STRIDE = 140 };

	for (uint64_t run = 1; run <= LONGEST; run++)
		for (uint64_t pad = 0; pad < 3; pad++) {
			struct gsn_view view = gsn_view_rows(0, 9, RUNS, run, STRIDE);
			uint8_t out[RUNS * (LONGEST + 2)], wanted[RUNS * (LONGEST + 2)];

			view.pad = pad;
			view.fill = 0x5a5a5a5a;
			memset(wanted, 0x5a, sizeof wanted);
			for (uint64_t r = 0; r < RUNS; r++)
				memcpy(wanted + r * (run + pad), file + 9 + r * STRIDE, run);
			gsn_gather(&view, file + 9, out);
			ck_assert_mem_eq(out, wanted, RUNS * (run + pad));
		}
}
END_TEST

START_TEST(transposed_views_are_gathered_column_by_column)
{
	struct gsn_view views[] = {
		placed(gsn_view_bytes(0, 0, 100), 100, 0),
		placed(transposed_view(), 2ull * T_STRIDE * T_COLUMNS, 100),
		placed(gsn_view_bytes(0, 900, 100), 100, 100 + T_ROWS * T_PITCH),
	};
	static uint8_t out[200 + T_ROWS * T_PITCH];

	for (uint64_t slot = 64; slot <= 65536; slot *= 2)
		for (uint64_t read = 16; read <= 65536; read *= 4) {
			struct gsn_plan_limits limits = {
				slot, read, (gpusnap_compact)(slot / 64 % 3)};

			memset(out, 0, sizeof out);
			(void)plan_run(views, 3, &limits, shards, out, sizeof out);
			ck_assert_uint_eq(wrong_transposed(out + 100), 0);
			ck_assert_mem_eq(out, file, 100);
			ck_assert_mem_eq(out + 100 + T_ROWS * T_PITCH, file + 900, 100);
		}
}
END_TEST

/* Two parts whose rows lie interleaved: what lies between first and last is read once. */
START_TEST(interleaved_parts_of_a_window_share_their_reads)
{
	struct gsn_view even = transposed_view(), odd = transposed_view();
	struct gsn_plan_limits limits = {65536, 65536, GPUSNAP_COMPACT_AUTO};
	static uint8_t out[2 * T_ROWS * T_PITCH];
	struct gsn_view views[2];

	odd.source += 2;
	odd.target = T_ROWS * T_PITCH;
	views[0] = even;
	views[1] = odd;
	ck_assert_uint_le(plan_run(views, 2, &limits, shards, out, sizeof out).bytes_read,
		T_STRIDE * T_COLUMNS);
	limits.slot_bytes = 16384; /* a window each: read twice, not once a row */
	ck_assert_uint_le(plan_run(views, 2, &limits, shards, out, sizeof out).bytes_read,
		2ull * T_STRIDE * T_COLUMNS);
}
END_TEST

/* A narrow strip of a wide matrix: a read a column, and none of what lies between. */
START_TEST(narrow_strips_of_wide_matrices_skip_the_rest)
{
	struct gsn_view view = {
		.kind = GSN_VIEW_TRANSPOSE,
		.storage = 20 * 20000,
		.count = {1, 100, 20},
		.stride = {0, 2, 20000},
		.run = 2,
		.pitch = 40,
		.claim = 4000,
	};
	struct gsn_plan_limits limits = {65536, 65536, GPUSNAP_COMPACT_AUTO};
	uint8_t out[4000];

	ck_assert_uint_eq(plan_run(&view, 1, &limits, shards, out, sizeof out).bytes_read, 4000);
	for (size_t i = 0; i < 2000; i++)
		ck_assert_mem_eq(out + 2 * i, file + i % 20 * 20000 + 2 * (i / 20), 2);
}
END_TEST

/* ---- padding ---- */

START_TEST(padding_follows_every_run_whatever_the_cut)
{
	struct gsn_view rows = gsn_view_rows(0, 40, 9, 50, 64);
	uint8_t out[9 * 70 + 101];
	struct gsn_view views[2];

	rows.pad = 20;
	rows.fill = 0x7f7f7f7f;
	views[0] = rows;
	views[1] = placed(gsn_view_padding(0x3f800000, 101), 0, 9 * 70);
	for (uint64_t slot = 8; slot <= 1024; slot *= 2) {
		struct gsn_plan_limits limits = {slot, slot, GPUSNAP_COMPACT_AUTO};

		memset(out, 0xa5, sizeof out);
		(void)plan_run(views, 2, &limits, shards, out, sizeof out);
		for (size_t r = 0; r < 9; r++) {
			ck_assert_mem_eq(out + 70 * r, file + 40 + 64 * r, 50);
			for (size_t i = 50; i < 70; i++)
				ck_assert_uint_eq(out[70 * r + i], 0x7f);
		}
		for (size_t i = 0; i < 101; i++)
			ck_assert_uint_eq(out[630 + i], 0x3f800000u >> 8 * (i % 4) & 0xff);
	}
	ck_assert(!gsn_view_is_contiguous(&rows));
}
END_TEST

START_TEST(exponents_are_spread_as_they_are)
{
	static const uint8_t expected[2][7] = {
		{10, 11, 11, 12, 127, 127, 127}, {20, 21, 21, 22, 127, 127, 127}};
	static const uint8_t scales[2][3] = {{10, 11, 12}, {20, 21, 22}};
	const uint8_t *const shard[] = {scales[0]};
	struct gsn_view view = {
		.kind = GSN_VIEW_SCALE,
		.storage = sizeof scales,
		.count = {1, 2, 4},
		.stride = {0, 3, 1},
		.run = 1,
		.pad = 3,
		.fill = 0x7f7f7f7f,
		.scale = {GPUSNAP_F8_E8M0, 1, 2, 0, 1},
	};

	for (uint64_t slot = 8; slot <= 64; slot *= 2) {
		struct gsn_plan_limits limits = {slot, slot, GPUSNAP_COMPACT_AUTO};
		uint8_t out[14] = {0};

		(void)plan_run(&view, 1, &limits, shard, out, sizeof out);
		ck_assert_mem_eq(out, expected, sizeof out);
	}
}
END_TEST

START_TEST(memory_views_need_no_read)
{
	static const uint8_t bytes[100] = {1, 2, 3, [99] = 9};
	struct gsn_view view = placed(gsn_view_bytes(0, 0, sizeof bytes), 0, 0);
	struct gsn_plan_limits limits = {64, 64, GPUSNAP_COMPACT_AUTO};
	uint8_t out[sizeof bytes];
	struct plan_totals totals;

	view.kind = GSN_VIEW_MEMORY;
	view.memory = bytes;
	totals = plan_run(&view, 1, &limits, shards, out, sizeof out);
	ck_assert_uint_eq(totals.reads, 0);
	ck_assert_uint_eq(totals.windows, 2);
	ck_assert_mem_eq(out, bytes, sizeof bytes);
}
END_TEST

START_TEST(empty_views_are_skipped)
{
	struct gsn_view views[] = {
		placed(gsn_view_bytes(0, 50, 0), 0, 0),
		placed(gsn_view_bytes(0, 50, 10), 10, 0),
		placed(gsn_view_bytes(0, 60, 0), 0, 10),
	};
	struct gsn_plan_limits limits = {64, 64, GPUSNAP_COMPACT_NEVER};
	uint8_t out[10];

	ck_assert_uint_eq(plan_run(views, 3, &limits, shards, out, 10).windows, 1);
	ck_assert_mem_eq(out, file + 50, 10);
	ck_assert_uint_eq(plan_run(views, 1, &limits, shards, out, 0).windows, 0);
}
END_TEST

/* ---- memory ---- */

static uint64_t staging_bytes(uint32_t depth, uint64_t block)
{
	const struct gsn_load_job job = {.bytes = UINT64_C(1) << 40};
	struct gsn_load_stage stage = {.job = &job, .threads = GSN_LOAD_THREADS_MAX};

	stage.io.depth = depth;
	stage.io.block_bytes = block;
	stage.limits = gsn_load_limits(job.bytes, &stage.io, GPUSNAP_COMPACT_AUTO);
	return GSN_LOAD_SLOTS * stage.limits.slot_bytes +
	       gsn_max(gsn_ring_reads_memory(&stage), gsn_cached_reads_memory(&stage));
}

START_TEST(staging_is_bounded_whatever_is_asked_for)
{
	static const uint32_t depths[] = {1, 8, 1024};
	static const uint64_t blocks[] = {65536, 4 << 20, 64 << 20};

	for (int d = 0; d < 3; d++)
		for (int b = 0; b < 3; b++)
			ck_assert_uint_le(staging_bytes(depths[d], blocks[b]), UINT64_C(400) << 20);
	ck_assert_uint_le(staging_bytes(8, 4 << 20), UINT64_C(165) << 20);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		compaction_test_has_two_parts,
		compaction_names_are_parsed,
		one_window_is_one_copy_and_never_is_one_a_view,
		whole_tensors_in_order_are_read_directly,
		views_larger_than_slot_and_read_are_cut,
		columns_are_read_at_most_twice_over_where_pages_can_be_skipped,
		rows_are_merged_within_a_tenth_of_over_read,
		columns_do_not_widen_the_reads_of_rows,
		scales_are_spread_over_the_finer_grid,
		strided_views_of_three_dimensions_are_gathered,
		runs_of_every_length_are_gathered,
		transposed_views_are_gathered_column_by_column,
		interleaved_parts_of_a_window_share_their_reads,
		narrow_strips_of_wide_matrices_skip_the_rest,
		padding_follows_every_run_whatever_the_cut,
		exponents_are_spread_as_they_are,
		memory_views_need_no_read,
		empty_views_are_skipped,
		staging_is_bounded_whatever_is_asked_for,
	};

	fill_file();
	return RUN_SUITE("load_windows", tests);
}
