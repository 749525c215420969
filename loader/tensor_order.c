/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/tensor_order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "loader/parallel.h"

/* ---- two names ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t digit_count(const char *text)
{
	size_t count = 0;

	while (is_digit(text[count]))
		count++;
	return count;
}

/* Names of one layer share half of their characters: skip those eight at a time. */
static size_t common_length(const gpusnap_tensor *a, const gpusnap_tensor *b)
{
	size_t length = (size_t)gsn_min(a->name_length, b->name_length), at = 0;
	uint64_t x, y;

	for (; length - at >= sizeof x; at += sizeof x) {
		memcpy(&x, a->name + at, sizeof x);
		memcpy(&y, b->name + at, sizeof y);
		if (x != y)
			break;
	}
	while (at < length && a->name[at] == b->name[at])
		at++;
	return at;
}

int gsn_tensor_order(const gpusnap_tensor *a, const gpusnap_tensor *b)
{
	size_t at = common_length(a, b);
	const char *x = a->name + at, *y = b->name + at;

	if (*x == *y)
		return 0; /* both have ended */
	if ((is_digit(*x) && is_digit(*y)) || (at > 0 && is_digit(x[-1]))) {
		size_t digits_x = digit_count(x), digits_y = digit_count(y);

		if (digits_x != digits_y)
			return digits_x < digits_y ? -1 : 1;
	}
	return (uint8_t)*x < (uint8_t)*y ? -1 : 1;
}

static int compare(const void *a, const void *b)
{
	const struct gsn_checkpoint_tensor *x = a, *y = b;

	return gsn_tensor_order(x->tensor, y->tensor);
}

/* ---- all of them ---- */

struct sorting {
	struct gsn_checkpoint_tensor *tensors;
	const size_t *first;
};

static void sort_part(void *argument, uint64_t part)
{
	const struct sorting *sorting = argument;
	size_t first = sorting->first[part], count = sorting->first[part + 1] - first;

	if (count)
		qsort(sorting->tensors + first, count, sizeof *sorting->tensors, compare);
}

/* Merge [first, middle) and [middle, end); `spare` takes the former. */
static void merge(struct gsn_checkpoint_tensor *tensors, size_t first, size_t middle, size_t end,
	struct gsn_checkpoint_tensor *spare)
{
	size_t left = 0, lefts = middle - first, right = middle, to = first;

	if (first == middle || middle == end || compare(&tensors[middle - 1], &tensors[middle]) < 0)
		return;
	memcpy(spare, tensors + first, lefts * sizeof *spare);
	while (left < lefts && right < end)
		tensors[to++] = compare(&spare[left], &tensors[right]) <= 0 ? spare[left++]
									    : tensors[right++];
	memcpy(tensors + to, spare + left, (lefts - left) * sizeof *spare);
}

static void merge_parts(struct gsn_checkpoint_tensor *tensors, const size_t *first, size_t parts,
	struct gsn_checkpoint_tensor *spare)
{
	for (size_t width = 1; width < parts; width *= 2)
		for (size_t i = 0; i + width < parts; i += 2 * width)
			merge(tensors, first[i], first[i + width],
				first[gsn_min(i + 2 * width, parts)], spare);
}

gpusnap_status gsn_tensor_order_sort(struct gsn_checkpoint_tensor *tensors, const size_t *first,
	size_t parts, gpusnap_error *err)
{
	struct sorting sorting = {tensors, first};
	struct gsn_checkpoint_tensor *spare;
	gpusnap_status st = gsn_parallel_run(sort_part, &sorting, parts, err);

	if (st || parts < 2)
		return st;
	spare = gsn_alloc(first[parts], sizeof *spare);
	if (!spare)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory to sort %zu tensors", first[parts]);
	merge_parts(tensors, first, parts, spare);
	gsn_free(spare);
	return GPUSNAP_OK;
}
