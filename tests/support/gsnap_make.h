/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_GSNAP_MAKE_H
#define GPUSNAP_TEST_GSNAP_MAKE_H
/*
 * Small snapshots in memory, made from a plan by the words of formats/gsnap.md and the functions
 * of formats alone: for golden files, and for tests of readers. Deterministic. Whatever goes wrong
 * aborts, since only the test itself can be at fault.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/plan.h>

/* A plan without regions, of rank 0 of 1; gpusnap_plan_free(). */
gpusnap_plan *make_plan(void);
/* Append; texts and shapes are copied. The result is valid until the next of its kind. */
gpusnap_plan_region *make_region(gpusnap_plan *plan, uint32_t id, const char *tag, uint64_t bytes);
gpusnap_plan_buffer *make_buffer(gpusnap_plan *plan, const char *name, gpusnap_dtype dtype,
	uint32_t region, uint64_t offset, uint32_t rank, const uint64_t *shape);
/* An I32 buffer of the type's length, role expert_mask. */
gpusnap_plan_buffer *make_mask(gpusnap_plan *plan, const char *name, uint32_t region,
	uint64_t offset, const gpusnap_mask_type *type);
/* Contiguous strides, for the caller to change. */
gpusnap_plan_view *make_view(gpusnap_plan *plan, const char *name, const char *buffer,
	gpusnap_dtype dtype, uint64_t offset, uint32_t rank, const uint64_t *shape);

struct gsnap_file {
	uint8_t *bytes;
	size_t length;
	size_t header_bytes; /* offset of the data section */
	size_t leaves_at;
	size_t seal_at;
};

/*
 * The file that holds what `plan` keeps: bytes by a fixed pattern of region and offset, masks as
 * their type says. `text` goes into the header as the plan; NULL: the plan's own.
 */
struct gsnap_file make_file(const gpusnap_plan *plan, const char *text);
/* Compute leaf table, digests and seal anew from the bytes that are there now. */
void seal_file(struct gsnap_file *file, const gpusnap_plan *plan);
void free_file(struct gsnap_file *file);

/*
 * Read a whole file as a reader must: seal, header digest, header, plan, all of them against each
 * other, leaf table, then every leaf of the data. Results are the caller's; NULL where not wanted.
 */
gpusnap_status read_gsnap(const uint8_t *bytes, size_t length, gpusnap_seal *ret_seal,
	gpusnap_plan **ret_plan, gpusnap_error *err);

#endif
