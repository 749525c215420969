/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the seeds of fuzz_delta: make_delta_corpus FOLDER. The same bytes on every machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "tests/support/delta_make.h"

static void must(int condition, const char *what)
{
	if (!condition) {
		(void)fprintf(stderr, "make_delta_corpus: %s\n", what);
		exit(EXIT_FAILURE);
	}
}

/* `leaves` leaves and a bit in one buffer, a small one, an empty one, and unclaimed bytes. */
static gpusnap_plan *state(uint64_t leaves)
{
	const uint64_t large[] = {leaves * GPUSNAP_LEAF_BYTES + 40}, small[] = {4, 8}, none[] = {0};
	gpusnap_plan *plan = make_plan();

	make_region(plan, 1, "weights", large[0] + 200);
	make_buffer(plan, "large", GPUSNAP_U8, 1, 0, 1, large);
	make_buffer(plan, "small", GPUSNAP_BF16, 1, large[0] + 8, 2, small);
	make_buffer(plan, "none", GPUSNAP_F32, 1, 0, 1, none);
	return plan;
}

static void write_chain(const char *folder, const char *name, const struct gsnap_file *parent,
	const struct gsnap_file *delta)
{
	char *path = gsn_printf("%s/%s", folder, name);
	FILE *stream = path ? fopen(path, "wb") : NULL;
	uint8_t length[4];

	must(stream != NULL, name);
	gsn_put_le32(length, (uint32_t)parent->length);
	must(fwrite(length, 1, 4, stream) == 4, name);
	must(fwrite(parent->bytes, 1, parent->length, stream) == parent->length, name);
	must(fwrite(delta->bytes, 1, delta->length, stream) == delta->length, name);
	must(fclose(stream) == 0, name);
	gsn_free(path);
}

/* Every `step`-th byte of the data changed; 0: none. */
static void make_seed(const char *folder, const char *name, uint64_t leaves, size_t step)
{
	gpusnap_plan *plan = state(leaves);
	struct gsnap_file before = make_file(plan, NULL), after = make_file(plan, NULL), delta;

	for (size_t at = after.header_bytes; step && at < after.leaves_at; at += step)
		after.bytes[at] ^= 1;
	seal_file(&after, plan);
	plan->delta = make_changes(&before, &after, "parent", 1);
	delta = make_delta(plan, &after, root_of(&before));
	write_chain(folder, name, &before, &delta);
	free_file(&before);
	free_file(&after);
	free_file(&delta);
	gpusnap_plan_free(plan);
}

int main(int argc, char **argv)
{
	must(argc == 2, "usage: make_delta_corpus FOLDER");
	make_seed(argv[1], "nothing_changed", 0, 0);
	make_seed(argv[1], "all_changed", 0, 16);
	make_seed(argv[1], "first_leaf", 2, 1000000);
	make_seed(argv[1], "two_runs", 2, 2 * (size_t)GPUSNAP_LEAF_BYTES);
	return EXIT_SUCCESS;
}
