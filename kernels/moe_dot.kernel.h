/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_DOT_KERNEL_H
#define GSN_MOE_DOT_KERNEL_H
/*
 * The dot product of arithmetic.md on a GPU. Eight lanes own a row of weights, and the rows that
 * share their inputs are taken together; each lane's next chunks are on their way while it works.
 * Results do not depend on how many rows or tokens are taken at once.
 */
#include "kernels/gpu_kernels.h"
#include "kernels/moe_math.h"

enum {
	GSN_ROW_LANES = 8,
	GSN_ROWS_AT_ONCE = GSN_WARP / GSN_ROW_LANES, /* of a warp, times rows per lane */
};

/*
 * Formats of weights: element type, bits of an element, elements of a chunk, what 16-byte loads a
 * chunk is; scale type where there are scales. TOKENS that go through an expert at once, where
 * there are several; where its weights are fed through shared memory, rows of a lane and turns
 * under way.
 */
struct gsn_f32 {
	typedef float element;
	typedef float scale;
	enum { BITS = 32, CHUNK = 8, LOADS = 2, SCALED = 0 };
	enum { TOKENS = GSN_PLAIN_TOKENS, FED_ROWS = 2, FED_STEPS = 4 };
	GSN_DEVICE_FN float decode(float code)
	{
		return code;
	}
	GSN_DEVICE_FN float at(const float *row, uint32_t k)
	{
		return row[k];
	}
	GSN_DEVICE_FN void decode_4(const uint4 *raw, int quarter, float out[4])
	{
		const uint4 v = raw[quarter];

		out[0] = __uint_as_float(v.x);
		out[1] = __uint_as_float(v.y);
		out[2] = __uint_as_float(v.z);
		out[3] = __uint_as_float(v.w);
	}
};

struct gsn_bf16 {
	typedef uint16_t element;
	typedef float scale;
	enum { BITS = 16, CHUNK = 8, LOADS = 1, SCALED = 0 };
	enum { TOKENS = GSN_PLAIN_TOKENS, FED_ROWS = 2, FED_STEPS = 4 };
	GSN_DEVICE_FN float decode(uint16_t code)
	{
		return gsn_decode_bf16(code);
	}
	GSN_DEVICE_FN float at(const uint16_t *row, uint32_t k)
	{
		return decode(row[k]);
	}
	GSN_DEVICE_FN void decode_4(const uint4 *raw, int quarter, float out[4])
	{
		unsigned low = quarter ? raw->z : raw->x;
		unsigned high = quarter ? raw->w : raw->y;

		out[0] = __uint_as_float(low << 16);
		out[1] = __uint_as_float(low & 0xffff0000u);
		out[2] = __uint_as_float(high << 16);
		out[3] = __uint_as_float(high & 0xffff0000u);
	}
};

struct gsn_f16 {
	typedef uint16_t element;
	typedef float scale;
	enum { BITS = 16, CHUNK = 8, LOADS = 1, SCALED = 0 };
	enum { TOKENS = GSN_PLAIN_TOKENS, FED_ROWS = 2, FED_STEPS = 4 };
	GSN_DEVICE_FN float decode(uint16_t code)
	{
		return gsn_decode_f16(code);
	}
	GSN_DEVICE_FN float at(const uint16_t *row, uint32_t k)
	{
		return decode(row[k]);
	}
	GSN_DEVICE_FN void decode_4(const uint4 *raw, int quarter, float out[4])
	{
		gsn_decode_2_f16(quarter ? raw->z : raw->x, out);
		gsn_decode_2_f16(quarter ? raw->w : raw->y, out + 2);
	}
};

template <typename SCALE> struct gsn_f8_e4m3 {
	typedef uint8_t element;
	typedef SCALE scale;
	enum { BITS = 8, CHUNK = 16, LOADS = 1, SCALED = 1 };
	enum { TOKENS = GSN_SCALED_TOKENS, FED_ROWS = 4, FED_STEPS = 4 };
	GSN_DEVICE_FN float at(const uint8_t *row, uint32_t k)
	{
		return gsn_decode_f8_e4m3(row[k]);
	}
	GSN_DEVICE_FN void decode_4(const uint4 *raw, int quarter, float out[4])
	{
		const unsigned words[4] = {raw->x, raw->y, raw->z, raw->w};

		gsn_decode_4_f8_e4m3(words[quarter], out);
	}
};

template <typename SCALE> struct gsn_f4 {
	typedef uint8_t element;
	typedef SCALE scale;
	enum { BITS = 4, CHUNK = 32, LOADS = 1, SCALED = 1 };
	enum { TOKENS = GSN_SCALED_TOKENS, FED_ROWS = 4, FED_STEPS = 4 };
	GSN_DEVICE_FN float at(const uint8_t *row, uint32_t k)
	{
		return gsn_decode_f4_e2m1((uint32_t)row[k / 2] >> (k % 2 * 4));
	}
	GSN_DEVICE_FN void decode_8(const uint4 *raw, int word, float out[8])
	{
		const unsigned words[4] = {raw->x, raw->y, raw->z, raw->w};

		gsn_decode_8_f4(words[word], out);
	}
};

/* Scales as they are in memory, by type. */
struct gsn_scale {
	GSN_DEVICE_FN float decode(float scale)
	{
		return scale;
	}
	GSN_DEVICE_FN float decode(uint8_t scale)
	{
		return gsn_decode_f8_e8m0(scale);
	}
	GSN_DEVICE_FN void set_one(float *scale)
	{
		*scale = 1.0f;
	}
	GSN_DEVICE_FN void set_one(uint8_t *scale)
	{
		*scale = 127;
	}
};

/* A stack of matrices [matrices, rows, columns] with a scale for each block, or none. */
struct gsn_matrix {
	const void *weights;
	const void *scales; /* NULL: none */
	uint32_t rows, columns;
	uint32_t block_n, block_k;
	uint32_t scale_rows, scale_columns; /* of one matrix */
};

/* One row, and the scales of its blocks. */
template <typename FORMAT> struct gsn_row {
	const typename FORMAT::element *weights;
	const typename FORMAT::scale *scales;
};

template <typename FORMAT>
GSN_DEVICE_FN gsn_row<FORMAT> gsn_row_at(const gsn_matrix &matrix, uint64_t index, uint32_t row)
{
	gsn_row<FORMAT> result;

	uint64_t weight = (index * matrix.rows + row) * matrix.columns;

	result.weights = (const typename FORMAT::element *)((const char *)matrix.weights +
							    weight * FORMAT::BITS / 8);
	result.scales = NULL;
	if (FORMAT::SCALED && matrix.scales)
		result.scales =
			(const typename FORMAT::scale *)matrix.scales +
			(index * matrix.scale_rows + row / matrix.block_n) * matrix.scale_columns;
	return result;
}

/* Weights of a lane's chunk and their scale, as they are in memory. */
template <typename FORMAT> struct gsn_chunk {
	uint4 raw[FORMAT::LOADS];
	typename FORMAT::scale scale;
};

GSN_DEVICE_FN float gsn_sum_of_8(const float a[8])
{
	return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

/* The dot product from the accumulators of the row's eight lanes; all of them get it. */
GSN_DEVICE_FN float gsn_reduce(const float a[8])
{
	float sum = gsn_sum_of_8(a);

	for (int distance = 1; distance < GSN_ROW_LANES; distance *= 2)
		sum += gsn_shuffle_xor(sum, distance);
	return gsn_canonical(sum);
}

template <int ROWS, int TOKENS> GSN_DEVICE_FN void gsn_dot_begin(float a[ROWS][TOKENS][8])
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int t = 0; t < TOKENS; t++)
#pragma unroll
			for (int i = 0; i < 8; i++)
				a[r][t][i] = 0.0f;
}

template <int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_dot_end(float out[ROWS][TOKENS], const float a[ROWS][TOKENS][8])
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int t = 0; t < TOKENS; t++)
			out[r][t] = gsn_reduce(a[r][t]);
}

/* ---- rows that are whole chunks at 16-byte addresses ---- */

/*
 * Where a lane's inputs are: natural, a chunk's elements after each other; or tiled, so that the
 * eight lanes of a row read 128 bytes at once: of each turn of 8 chunks first the elements 0 .. 3
 * of all chunks, then 4 .. 7, and so on. Rows of tiled inputs are whole turns.
 */
template <typename FORMAT, bool TILED> struct gsn_inputs {
	enum {
		TURN = GSN_ROW_LANES * FORMAT::CHUNK,
		LANE = TILED ? 4 : FORMAT::CHUNK,	 /* from one lane to the next */
		QUARTER = TILED ? 4 * GSN_ROW_LANES : 4, /* from one four of elements to the next */
	};
};

/* Which element of a row is at a place, a multiple of 4, of its tiled copy. */
template <typename FORMAT> GSN_DEVICE_FN uint32_t gsn_tiled_element(uint32_t place)
{
	const uint32_t turn = GSN_ROW_LANES * FORMAT::CHUNK, four = 4 * GSN_ROW_LANES;

	return place / turn * turn + place % four / 4 * FORMAT::CHUNK + place % turn / four * 4;
}

template <typename FORMAT>
GSN_DEVICE_FN gsn_chunk<FORMAT> gsn_load_chunk(
	const gsn_row<FORMAT> &row, uint32_t chunk, uint32_t block_shift)
{
	const uint4 *at = (const uint4 *)row.weights + chunk * FORMAT::LOADS;
	gsn_chunk<FORMAT> result;

#pragma unroll
	for (int i = 0; i < FORMAT::LOADS; i++)
		result.raw[i] = gsn_load_streamed(at + i);
	gsn_scale::set_one(&result.scale);
	if (FORMAT::SCALED && row.scales)
		result.scale = __ldg(row.scales + (chunk >> block_shift));
	return result;
}

/* Elements 4q .. 4q + 3 of a chunk of 8, for every row and token. */
template <typename FORMAT, int QUARTER, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_add_plain(float a[ROWS][TOKENS][8], const gsn_chunk<FORMAT> chunks[ROWS],
	const float *const x[TOKENS], uint32_t k)
{
#pragma unroll
	for (int quarter = 0; quarter < 2; quarter++) {
		float w[ROWS][4];

#pragma unroll
		for (int r = 0; r < ROWS; r++)
			FORMAT::decode_4(chunks[r].raw, quarter, w[r]);
#pragma unroll
		for (int t = 0; t < TOKENS; t++) {
			const float4 v = gsn_load_shared(x[t] + k + quarter * QUARTER);

#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float *sum = a[r][t] + 4 * quarter;

				sum[0] = fmaf(w[r][0], v.x, sum[0]);
				sum[1] = fmaf(w[r][1], v.y, sum[1]);
				sum[2] = fmaf(w[r][2], v.z, sum[2]);
				sum[3] = fmaf(w[r][3], v.w, sum[3]);
			}
		}
	}
}

/* Elements i and i + 8 of a chunk of 16 are summed before the scale comes in. */
template <typename FORMAT, int QUARTER, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_add_scaled(float a[ROWS][TOKENS][8], const gsn_chunk<FORMAT> chunks[ROWS],
	const float *const x[TOKENS], uint32_t k)
{
#pragma unroll
	for (int quarter = 0; quarter < 2; quarter++) {
		float w[ROWS][8];

#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			FORMAT::decode_4(chunks[r].raw, quarter, w[r]);
			FORMAT::decode_4(chunks[r].raw, quarter + 2, w[r] + 4);
		}
#pragma unroll
		for (int t = 0; t < TOKENS; t++) {
			const float4 v0 = gsn_load_shared(x[t] + k + quarter * QUARTER);
			const float4 v1 = gsn_load_shared(x[t] + k + (quarter + 2) * QUARTER);

#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float *sum = a[r][t] + 4 * quarter;
				float scale = gsn_scale::decode(chunks[r].scale);

				sum[0] = fmaf(fmaf(w[r][4], v1.x, w[r][0] * v0.x), scale, sum[0]);
				sum[1] = fmaf(fmaf(w[r][5], v1.y, w[r][1] * v0.y), scale, sum[1]);
				sum[2] = fmaf(fmaf(w[r][6], v1.z, w[r][2] * v0.z), scale, sum[2]);
				sum[3] = fmaf(fmaf(w[r][7], v1.w, w[r][3] * v0.w), scale, sum[3]);
			}
		}
	}
}

/* w . v of four elements, as it is summed before the scale comes in. */
GSN_DEVICE_FN float gsn_dot_4(const float w[4], const float4 &v)
{
	return fmaf(w[3], v.w, fmaf(w[2], v.z, fmaf(w[1], v.y, w[0] * v.x)));
}

/* Elements of a chunk of 32, four for each sum. */
template <typename FORMAT, int QUARTER, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_add_fours(float a[ROWS][TOKENS][8], const gsn_chunk<FORMAT> chunks[ROWS],
	const float *const x[TOKENS], uint32_t k)
{
#pragma unroll
	for (int word = 0; word < 4; word++) {
		float w[ROWS][8];

#pragma unroll
		for (int r = 0; r < ROWS; r++)
			FORMAT::decode_8(chunks[r].raw, word, w[r]);
#pragma unroll
		for (int t = 0; t < TOKENS; t++) {
			const float4 v0 = gsn_load_shared(x[t] + k + 2 * word * QUARTER);
			const float4 v1 = gsn_load_shared(x[t] + k + (2 * word + 1) * QUARTER);

#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float *sum = a[r][t] + 2 * word;
				float scale = gsn_scale::decode(chunks[r].scale);

				sum[0] = fmaf(gsn_dot_4(w[r], v0), scale, sum[0]);
				sum[1] = fmaf(gsn_dot_4(w[r] + 4, v1), scale, sum[1]);
			}
		}
	}
}

/* A lane's chunks of one turn; `k`: of the turn's first element. */
template <typename FORMAT, bool TILED, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_add_turn(float a[ROWS][TOKENS][8], const gsn_chunk<FORMAT> chunks[ROWS],
	const float *const x[TOKENS], uint32_t k)
{
	const int quarter = gsn_inputs<FORMAT, TILED>::QUARTER;

	if constexpr (FORMAT::BITS == 4)
		gsn_add_fours<FORMAT, quarter, ROWS, TOKENS>(a, chunks, x, k);
	else if constexpr (FORMAT::SCALED)
		gsn_add_scaled<FORMAT, quarter, ROWS, TOKENS>(a, chunks, x, k);
	else
		gsn_add_plain<FORMAT, quarter, ROWS, TOKENS>(a, chunks, x, k);
}

/* A block of scales is 2^this chunks. */
template <typename FORMAT> GSN_DEVICE_FN uint32_t gsn_block_shift(const gsn_matrix &matrix)
{
	return FORMAT::SCALED && matrix.scales ? __ffs(matrix.block_k / FORMAT::CHUNK) - 1 : 0;
}

/* The turns from `turn` on, AHEAD of them. */
template <typename FORMAT, int ROWS, int AHEAD>
GSN_DEVICE_FN void gsn_load_turns(gsn_chunk<FORMAT> chunks[AHEAD][ROWS],
	const gsn_row<FORMAT> rows[ROWS], uint32_t turn, uint32_t lane, uint32_t block_shift)
{
#pragma unroll
	for (int i = 0; i < AHEAD; i++)
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			chunks[i][r] = gsn_load_chunk(
				rows[r], (turn + i) * GSN_ROW_LANES + lane, block_shift);
}

template <typename FORMAT, bool TILED, int ROWS, int TOKENS, int AHEAD>
GSN_DEVICE_FN void gsn_add_turns(float a[ROWS][TOKENS][8],
	const gsn_chunk<FORMAT> chunks[AHEAD][ROWS], const float *const x[TOKENS], uint32_t turn)
{
#pragma unroll
	for (int i = 0; i < AHEAD; i++)
		gsn_add_turn<FORMAT, TILED, ROWS, TOKENS>(
			a, chunks[i], x, (turn + i) * gsn_inputs<FORMAT, TILED>::TURN);
}

/* AHEAD whole turns while the next ones are on their way; then the turns that are left. */
template <typename FORMAT, bool TILED, int ROWS, int TOKENS, int AHEAD>
GSN_DEVICE_FN void gsn_add_chunks(float a[ROWS][TOKENS][8], const gsn_row<FORMAT> rows[ROWS],
	const gsn_matrix &matrix, const float *const inputs[TOKENS], uint32_t lane)
{
	const uint32_t count = matrix.columns / FORMAT::CHUNK;
	const uint32_t whole = count / (AHEAD * GSN_ROW_LANES) * AHEAD;
	const uint32_t shift = gsn_block_shift<FORMAT>(matrix);
	gsn_chunk<FORMAT> one[AHEAD][ROWS], other[AHEAD][ROWS];
	const float *x[TOKENS];
	uint32_t turn = 0;

#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = inputs[t] + lane * gsn_inputs<FORMAT, TILED>::LANE;
	if (whole)
		gsn_load_turns<FORMAT, ROWS, AHEAD>(one, rows, 0, lane, shift);
#pragma unroll 1
	for (; turn + AHEAD < whole; turn += 2 * AHEAD) {
		gsn_load_turns<FORMAT, ROWS, AHEAD>(other, rows, turn + AHEAD, lane, shift);
		gsn_add_turns<FORMAT, TILED, ROWS, TOKENS, AHEAD>(a, one, x, turn);
		if (turn + 2 * AHEAD < whole)
			gsn_load_turns<FORMAT, ROWS, AHEAD>(
				one, rows, turn + 2 * AHEAD, lane, shift);
		gsn_add_turns<FORMAT, TILED, ROWS, TOKENS, AHEAD>(a, other, x, turn + AHEAD);
	}
	if (turn < whole) {
		gsn_add_turns<FORMAT, TILED, ROWS, TOKENS, AHEAD>(a, one, x, turn);
		turn += AHEAD;
	}
#pragma unroll 1
	for (; turn * GSN_ROW_LANES + lane < count; turn++) {
		gsn_load_turns<FORMAT, ROWS, 1>(one, rows, turn, lane, shift);
		gsn_add_turns<FORMAT, TILED, ROWS, TOKENS, 1>(a, one, x, turn);
	}
}

/* ---- any length, any alignment: element by element ---- */

/* Sum `i` of a chunk before the scale comes in. */
template <typename FORMAT>
GSN_DEVICE_FN float gsn_chunk_product(const float *w, const float *v, int i)
{
	if (FORMAT::BITS == 4)
		return gsn_dot_4(
			w + 4 * i, make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
	return fmaf(w[8 + i], v[8 + i], w[i] * v[i]);
}

template <typename FORMAT>
GSN_DEVICE_FN void gsn_add_element_chunk(float a[8], const gsn_row<FORMAT> &row,
	const gsn_matrix &matrix, const float *x, uint32_t k)
{
	float w[FORMAT::CHUNK], v[FORMAT::CHUNK];
	float scale = 1.0f;

	for (int i = 0; i < FORMAT::CHUNK; i++) {
		bool there = k + i < matrix.columns;

		w[i] = there ? FORMAT::at(row.weights, k + i) : 0.0f;
		v[i] = there ? x[k + i] : 0.0f;
	}
	if (FORMAT::SCALED && row.scales)
		scale = gsn_scale::decode(row.scales[k / matrix.block_k]);
	for (int i = 0; i < 8; i++) {
		if constexpr (FORMAT::SCALED)
			a[i] = fmaf(gsn_chunk_product<FORMAT>(w, v, i), scale, a[i]);
		else
			a[i] = fmaf(w[i], v[i], a[i]);
	}
}

template <typename FORMAT, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_add_elements(float a[ROWS][TOKENS][8], const gsn_row<FORMAT> rows[ROWS],
	const gsn_matrix &matrix, const float *const x[TOKENS], uint32_t lane)
{
	const uint64_t step = GSN_ROW_LANES * FORMAT::CHUNK;

	for (uint64_t k = lane * FORMAT::CHUNK; k < matrix.columns; k += step)
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int t = 0; t < TOKENS; t++)
				gsn_add_element_chunk<FORMAT>(
					a[r][t], rows[r], matrix, x[t], (uint32_t)k);
}

/* ---- */

/* One of an array of BF16, F16 or F32. */
GSN_DEVICE_FN float gsn_element(gpusnap_address values, gpusnap_dtype dtype, uint64_t index)
{
	if (dtype == GPUSNAP_BF16)
		return gsn_decode_bf16(((const uint16_t *)values)[index]);
	if (dtype == GPUSNAP_F16)
		return gsn_decode_f16(((const uint16_t *)values)[index]);
	return ((const float *)values)[index];
}

/* How the inputs of a dot product are laid out, and thereby which loop takes it. */
enum gsn_dot_shape {
	GSN_DOT_ANY,	 /* element by element */
	GSN_DOT_NATURAL, /* the matrix is whole, inputs are natural at 16-byte addresses */
	GSN_DOT_TILED,	 /* the matrix is whole, inputs are tiled for its format */
	GSN_DOT_FED,	 /* and weights come through shared memory (moe_fed.kernel.h) */
};

/*
 * out[r][t] = rows[r] . x[t], in all eight lanes of the row. The whole warp must call.
 * A matrix is whole when its columns are a multiple of the chunk, fewer than 2^31 bytes, its rows
 * begin at multiples of 16 bytes, and block_k is a power of two.
 */
template <typename FORMAT, gsn_dot_shape SHAPE, int ROWS, int TOKENS>
GSN_DEVICE_FN void gsn_dot(float out[ROWS][TOKENS], const gsn_row<FORMAT> rows[ROWS],
	const gsn_matrix &matrix, const float *const x[TOKENS])
{
	/* Turns ahead: enough bytes on their way, without more registers than there are. */
	const int ahead = TOKENS * ROWS == 1				      ? 8 / FORMAT::LOADS
			  : ROWS == 1					      ? 4 / FORMAT::LOADS
			  : FORMAT::LOADS * TOKENS * (FORMAT::CHUNK / 8) <= 4 ? 2
									      : 1;
	const uint32_t lane = threadIdx.x % GSN_ROW_LANES;
	float a[ROWS][TOKENS][8];

	gsn_dot_begin<ROWS, TOKENS>(a);
	if (SHAPE != GSN_DOT_ANY)
		gsn_add_chunks<FORMAT, SHAPE == GSN_DOT_TILED, ROWS, TOKENS, ahead>(
			a, rows, matrix, x, lane);
	else
		gsn_add_elements<FORMAT, ROWS, TOKENS>(a, rows, matrix, x, lane);
	gsn_dot_end<ROWS, TOKENS>(out, a);
}

#endif
