/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_GOLDEN_FILES_H
#define GPUSNAP_TEST_GOLDEN_FILES_H
/* What the parts of make_golden share. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/plan.h>

/* Ends the program when the condition does not hold. */
void golden_must(bool condition, const char *what);
/* FOLDER/NAME.gsnap */
void golden_write(const char *name, const uint8_t *bytes, size_t length);

/* Leaves: 64 KiB and a rest, 64 KiB exactly, a rest alone. */
gpusnap_plan *golden_leaves(void);
/*
 * An expert-parallel rank in small: weights with unclaimed bytes before, between and behind the
 * buffers, a second region that is not kept, views, a mask, the two records.
 */
gpusnap_plan *golden_two_regions(void);

void golden_good_deltas(void);
void golden_bad_deltas(void);

#endif
