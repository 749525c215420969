/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan against itself and against the header of its file. What passes can be restored without
 * more checks of sizes or places: names are unique, nothing overlaps, nothing leaves its region,
 * the file holds exactly what the policies keep. Linear but for sorting, since plans are large.
 */
#include "formats/plan_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"

enum { DATA_ALIGNMENT = 4096 };

/* A name of the plan: of a buffer, or of a view (buffer == NULL). */
struct name_entry {
	const char *name;
	const gpusnap_plan_buffer *buffer;
};

/* Bytes of a region that a buffer names or that the file holds raw. */
struct extent {
	const gpusnap_plan_region *region;
	uint64_t begin, end;
	const char *name;
};

struct check {
	const gpusnap_plan *plan;
	const gpusnap_header *header;
	const gpusnap_plan_region **regions; /* by id */
	struct name_entry *names;	     /* by name */
	size_t name_count;
	struct extent *extents; /* by region and begin, once all are collected */
	size_t extent_count;
	bool *listed;	     /* of a delta: buffers that have an entry, in the plan's order */
	uint64_t leaf_count; /* of all that the leaf table is of */
};

static const char *quote(const char *name, char text[GSN_QUOTE_BYTES])
{
	return gsn_quote(name, strlen(name), text);
}

/* ---- regions ---- */

static int compare_regions(const void *a, const void *b)
{
	const gpusnap_plan_region *x = *(const gpusnap_plan_region *const *)a;
	const gpusnap_plan_region *y = *(const gpusnap_plan_region *const *)b;

	return (x->id > y->id) - (x->id < y->id);
}

static gpusnap_status index_regions(struct check *check, gpusnap_error *err)
{
	const gpusnap_plan *plan = check->plan;

	check->regions = gsn_alloc(plan->region_count, sizeof(void *));
	if (!check->regions)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to index regions");
	for (uint32_t i = 0; i < plan->region_count; i++)
		check->regions[i] = &plan->regions[i];
	qsort(check->regions, plan->region_count, sizeof(void *), compare_regions);
	for (uint32_t i = 1; i < plan->region_count; i++)
		if (check->regions[i]->id == check->regions[i - 1]->id)
			return gsn_fail(err, GPUSNAP_E_FORMAT, "two regions have id %u",
				check->regions[i]->id);
	return GPUSNAP_OK;
}

static const gpusnap_plan_region *find_region(const struct check *check, uint32_t id)
{
	const gpusnap_plan_region key = {.id = id}, *wanted = &key;
	const gpusnap_plan_region **found = bsearch(&wanted, check->regions,
		check->plan->region_count, sizeof(void *), compare_regions);

	return found ? *found : NULL;
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct name_entry *)a)->name, ((const struct name_entry *)b)->name);
}

static const gpusnap_plan_buffer *find_buffer(const struct check *check, const char *name)
{
	const struct name_entry key = {.name = name};
	const struct name_entry *found =
		bsearch(&key, check->names, check->name_count, sizeof key, compare_names);

	return found ? found->buffer : NULL;
}

static bool is_reserved(const char *name)
{
	return strncmp(name, GPUSNAP_RESERVED_PREFIX, strlen(GPUSNAP_RESERVED_PREFIX)) == 0;
}

static gpusnap_status check_names(const struct check *check, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (size_t i = 0; i < check->name_count; i++) {
		const char *name = check->names[i].name;

		if (is_reserved(name))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"buffer or view '%s': names that begin with '%s' are reserved",
				quote(name, quoted), GPUSNAP_RESERVED_PREFIX);
		if (i > 0 && strcmp(name, check->names[i - 1].name) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"two buffers or views are named '%s'", quote(name, quoted));
	}
	return GPUSNAP_OK;
}

static gpusnap_status index_names(struct check *check, gpusnap_error *err)
{
	const gpusnap_plan *plan = check->plan;

	check->name_count = (size_t)plan->buffer_count + plan->view_count;
	check->names = gsn_alloc(check->name_count, sizeof *check->names);
	if (!check->names)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to index names");
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		check->names[i] = (struct name_entry){plan->buffers[i].name, &plan->buffers[i]};
	for (uint32_t i = 0; i < plan->view_count; i++)
		check->names[plan->buffer_count + i].name = plan->views[i].name;
	qsort(check->names, check->name_count, sizeof *check->names, compare_names);
	return check_names(check, err);
}

/* ---- extents ---- */

static void add_extent(struct check *check, const gpusnap_plan_region *region, uint64_t begin,
	uint64_t bytes, const char *name)
{
	if (bytes > 0)
		check->extents[check->extent_count++] =
			(struct extent){region, begin, begin + bytes, name};
}

static bool is_inside(const gpusnap_plan_region *region, uint64_t offset, uint64_t bytes)
{
	return offset <= region->bytes && bytes <= region->bytes - offset;
}

static int compare_extents(const void *a, const void *b)
{
	const struct extent *x = a;
	const struct extent *y = b;

	if (x->region != y->region)
		return x->region->id < y->region->id ? -1 : 1;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

static gpusnap_status fail_gap(
	const gpusnap_plan_region *region, uint64_t begin, uint64_t end, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"region %u ('%s') keeps unclaimed bytes, but the file lacks its bytes [%" PRIu64
		", %" PRIu64 "), which no buffer names",
		region->id, quote(region->tag, quoted), begin, end);
}

/* The extents of one region, from `first`: no overlap, and no gap where one would lose bytes. */
static gpusnap_status check_region(const struct check *check, const gpusnap_plan_region *region,
	size_t *first, gpusnap_error *err)
{
	bool gapless = region->unclaimed == GPUSNAP_POLICY_KEEP;
	char a[GSN_QUOTE_BYTES], b[GSN_QUOTE_BYTES];
	uint64_t at = 0;
	size_t i;

	for (i = *first; i < check->extent_count && check->extents[i].region == region; i++) {
		const struct extent *extent = &check->extents[i];

		if (extent->begin < at)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"'%s' and '%s' overlap in region %u: [%" PRIu64 ", %" PRIu64
				") begins before %" PRIu64,
				quote(extent[-1].name, a), quote(extent->name, b), region->id,
				extent->begin, extent->end, at);
		if (gapless && extent->begin > at)
			return fail_gap(region, at, extent->begin, err);
		at = extent->end;
	}
	*first = i;
	return gapless && at < region->bytes ? fail_gap(region, at, region->bytes, err)
					     : GPUSNAP_OK;
}

static gpusnap_status check_extents(struct check *check, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	size_t next = 0;

	qsort(check->extents, check->extent_count, sizeof *check->extents, compare_extents);
	for (uint32_t i = 0; i < check->plan->region_count && !status; i++)
		status = check_region(check, check->regions[i], &next, err);
	return status;
}

/* ---- buffers ---- */

static gpusnap_status check_tensor(
	const struct check *check, const gpusnap_plan_buffer *buffer, gpusnap_error *err)
{
	const gpusnap_tensor *tensor = gpusnap_header_find(check->header, buffer->name);

	if (!tensor)
		return gsn_fail(
			err, GPUSNAP_E_FORMAT, "is kept, but the file has no tensor of that name");
	if (tensor->dtype != buffer->dtype)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "dtype is %s, its tensor's is %s",
			gpusnap_dtype_name(buffer->dtype), gpusnap_dtype_name(tensor->dtype));
	if (tensor->rank != buffer->rank)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "rank is %u, its tensor's is %u",
			buffer->rank, tensor->rank);
	for (uint32_t i = 0; i < buffer->rank; i++)
		if (tensor->shape[i] != buffer->shape[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"dimension %u is %" PRIu64 ", its tensor's is %" PRIu64, i,
				buffer->shape[i], tensor->shape[i]);
	if (tensor->end - tensor->begin != buffer->bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "has %" PRIu64 " bytes, its tensor %" PRIu64,
			buffer->bytes, tensor->end - tensor->begin);
	return GPUSNAP_OK;
}

static gpusnap_status check_buffer(
	struct check *check, const gpusnap_plan_buffer *buffer, gpusnap_error *err)
{
	const gpusnap_plan_region *region = find_region(check, buffer->region);

	if (!region)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "lies in region %u, which the plan lacks",
			buffer->region);
	if (!is_inside(region, buffer->offset, buffer->bytes))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu64 " bytes at %" PRIu64 " leave region %u of %" PRIu64 " bytes",
			buffer->bytes, buffer->offset, region->id, region->bytes);
	if (buffer->kept != (region->policy == GPUSNAP_POLICY_KEEP))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is %s, but the policy of region %u is %s",
			buffer->kept ? "kept" : "not kept", region->id,
			gpusnap_policy_name(region->policy));
	add_extent(check, region, buffer->offset, buffer->bytes, buffer->name);
	return buffer->kept && !check->plan->delta ? check_tensor(check, buffer, err) : GPUSNAP_OK;
}

static gpusnap_status check_buffers(struct check *check, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < check->plan->buffer_count; i++) {
		const gpusnap_plan_buffer *buffer = &check->plan->buffers[i];
		gpusnap_status status = check_buffer(check, buffer, err);

		if (status) {
			gsn_error_prefix(err, "buffer '%s'", quote(buffer->name, quoted));
			return status;
		}
	}
	return GPUSNAP_OK;
}

/* ---- views ---- */

static gpusnap_status check_views(const struct check *check, gpusnap_error *err)
{
	char a[GSN_QUOTE_BYTES], b[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < check->plan->view_count; i++) {
		const gpusnap_plan_view *view = &check->plan->views[i];
		const gpusnap_plan_buffer *buffer = find_buffer(check, view->buffer);

		if (!buffer)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"view '%s' is of buffer '%s', which the plan lacks",
				quote(view->name, a), quote(view->buffer, b));
		if (!gsn_view_inside(view, buffer->bytes))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"view '%s' at offset %" PRIu64 " leaves buffer '%s' of %" PRIu64
				" bytes",
				quote(view->name, a), view->offset, quote(view->buffer, b),
				buffer->bytes);
	}
	return GPUSNAP_OK;
}

/* ---- tensors ---- */

static gpusnap_status check_raw(
	struct check *check, const char *name, uint64_t bytes, gpusnap_error *err)
{
	uint64_t offset = 0;
	uint32_t id = 0;
	const gpusnap_plan_region *region;

	if (!gpusnap_raw_name_parse(name, &id, &offset))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"is a reserved name that version %u does not define",
			GPUSNAP_FORMAT_VERSION);
	region = find_region(check, id);
	if (!region)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is of region %u, which the plan lacks", id);
	if (region->unclaimed != GPUSNAP_POLICY_KEEP)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"the unclaimed bytes of region %u are not kept, their policy is %s", id,
			gpusnap_policy_name(region->unclaimed));
	if (bytes == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "has 0 bytes, expected more");
	if (!is_inside(region, offset, bytes))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu64 " bytes at %" PRIu64 " leave region %u of %" PRIu64 " bytes",
			bytes, offset, id, region->bytes);
	add_extent(check, region, offset, bytes, name);
	return GPUSNAP_OK;
}

static gpusnap_status check_raw_tensor(
	struct check *check, const gpusnap_tensor *tensor, gpusnap_error *err)
{
	/* A name that holds NUL is cut to one that may be another's. */
	if (strlen(tensor->name) != tensor->name_length)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"is a reserved name that version %u does not define",
			GPUSNAP_FORMAT_VERSION);
	if (tensor->dtype != GPUSNAP_U8 || tensor->rank != 1)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is %s of rank %u, expected U8 [n], n > 0",
			gpusnap_dtype_name(tensor->dtype), tensor->rank);
	return check_raw(check, tensor->name, tensor->end - tensor->begin, err);
}

static gpusnap_status check_claimed(
	const struct check *check, const gpusnap_tensor *tensor, gpusnap_error *err)
{
	const gpusnap_plan_buffer *buffer = NULL;

	/* Buffer names hold no NUL, so that a name that does is none of them. */
	if (strlen(tensor->name) == tensor->name_length)
		buffer = find_buffer(check, tensor->name);
	if (!buffer)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is no buffer of the plan");
	if (!buffer->kept)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"is in the file, but the plan says that buffer is not kept");
	return GPUSNAP_OK;
}

static bool is_named(const gpusnap_tensor *tensor, const char *name)
{
	return tensor->name_length == strlen(name) && strcmp(tensor->name, name) == 0;
}

static gpusnap_status check_data_tensor(
	struct check *check, const gpusnap_tensor *tensor, gpusnap_error *err)
{
	gpusnap_status status = is_reserved(tensor->name) ? check_raw_tensor(check, tensor, err)
							  : check_claimed(check, tensor, err);
	char quoted[GSN_QUOTE_BYTES];

	check->leaf_count += gpusnap_leaf_count(tensor->end - tensor->begin);
	if (status)
		gsn_error_prefix(
			err, "tensor '%s'", gsn_quote(tensor->name, tensor->name_length, quoted));
	return status;
}

static gpusnap_status check_tensors(struct check *check, gpusnap_error *err)
{
	size_t count = gpusnap_header_tensor_count(check->header);

	for (size_t i = 0; i < count; i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(check->header, i);
		gpusnap_status status;

		if (is_named(tensor, GPUSNAP_LEAVES_NAME) || is_named(tensor, GPUSNAP_SEAL_NAME))
			continue;
		status = check_data_tensor(check, tensor, err);
		if (status)
			return status;
	}
	return GPUSNAP_OK;
}

/* ---- the entries of a delta, which stand for the tensors of a full snapshot ---- */

static gpusnap_status check_listed(
	struct check *check, const gpusnap_delta_entry *entry, gpusnap_error *err)
{
	const gpusnap_plan_buffer *buffer = find_buffer(check, entry->name);

	if (!buffer)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is no buffer of the plan");
	if (!buffer->kept)
		return gsn_fail(
			err, GPUSNAP_E_FORMAT, "the plan says that this buffer is not kept");
	if (buffer->bytes != entry->bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "has %" PRIu64 " bytes, its buffer %" PRIu64,
			entry->bytes, buffer->bytes);
	if (check->listed[buffer - check->plan->buffers])
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is there twice");
	check->listed[buffer - check->plan->buffers] = true;
	return GPUSNAP_OK;
}

static gpusnap_status check_entry(
	struct check *check, const gpusnap_delta_entry *entry, gpusnap_error *err)
{
	gpusnap_status status = is_reserved(entry->name)
					? check_raw(check, entry->name, entry->bytes, err)
					: check_listed(check, entry, err);
	char quoted[GSN_QUOTE_BYTES];

	/* No file bounds these sizes. */
	if (!status && gsn_add_overflow(check->leaf_count, gpusnap_leaf_count(entry->bytes),
			       &check->leaf_count))
		status = gsn_fail(err, GPUSNAP_E_FORMAT,
			"leaves of all entries up to this one are more than 2^64");
	if (status)
		gsn_error_prefix(err, "entry '%s'", quote(entry->name, quoted));
	return status;
}

static gpusnap_status check_entries(struct check *check, gpusnap_error *err)
{
	const gpusnap_plan *plan = check->plan;
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < plan->delta->entry_count; i++) {
		gpusnap_status status = check_entry(check, &plan->delta->entries[i], err);

		if (status)
			return status;
	}
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		if (plan->buffers[i].kept && !check->listed[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"buffer '%s' is kept, but the delta has no entry of that name",
				quote(plan->buffers[i].name, quoted));
	return gsn_delta_check(plan->delta, check->header, err);
}

/* ---- the end of the file: leaves, then the seal ---- */

static gpusnap_status check_leaves(
	const struct check *check, const gpusnap_tensor *leaves, gpusnap_error *err)
{
	if (leaves->dtype != GPUSNAP_U8 || leaves->rank != 2 ||
		leaves->shape[1] != GPUSNAP_DIGEST_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor '%s' is %s of rank %u, expected U8 [n, %u]", GPUSNAP_LEAVES_NAME,
			gpusnap_dtype_name(leaves->dtype), leaves->rank, GPUSNAP_DIGEST_BYTES);
	if (leaves->shape[0] != check->leaf_count)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor '%s' holds %" PRIu64 " digests, the data has %" PRIu64 " leaves",
			GPUSNAP_LEAVES_NAME, leaves->shape[0], check->leaf_count);
	return GPUSNAP_OK;
}

static gpusnap_status check_end(const struct check *check, gpusnap_error *err)
{
	size_t count = gpusnap_header_tensor_count(check->header);
	const gpusnap_tensor *leaves = gpusnap_header_find(check->header, GPUSNAP_LEAVES_NAME);
	const gpusnap_tensor *seal = gpusnap_header_find(check->header, GPUSNAP_SEAL_NAME);

	if (!leaves || !seal)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "the file has no tensor '%s'",
			leaves ? GPUSNAP_SEAL_NAME : GPUSNAP_LEAVES_NAME);
	if (seal->dtype != GPUSNAP_U8 || seal->rank != 1 || seal->shape[0] != GPUSNAP_SEAL_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor '%s' is %s of rank %u, expected U8 [%u]", GPUSNAP_SEAL_NAME,
			gpusnap_dtype_name(seal->dtype), seal->rank, GPUSNAP_SEAL_BYTES);
	if (gpusnap_header_tensor(check->header, count - 1) != seal || leaves->end != seal->begin)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s' and '%s' are not the last tensors of the file", GPUSNAP_LEAVES_NAME,
			GPUSNAP_SEAL_NAME);
	for (size_t i = count - 1; i-- > 0;) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(check->header, i);

		if (tensor->begin < leaves->begin)
			break;
		if (tensor != leaves && tensor->end > leaves->begin)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"a tensor lies behind the leaves, at %" PRIu64, tensor->begin);
	}
	return check_leaves(check, leaves, err);
}

static gpusnap_status check_alignment(const struct check *check, gpusnap_error *err)
{
	uint64_t offset = gpusnap_header_data_offset(check->header);

	if (offset % DATA_ALIGNMENT)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"data begins at %" PRIu64 ", expected a multiple of %d", offset,
			DATA_ALIGNMENT);
	return GPUSNAP_OK;
}

static gpusnap_status run_checks(struct check *check, gpusnap_error *err)
{
	gpusnap_status status = check_alignment(check, err);

	if (!status)
		status = index_regions(check, err);
	if (!status)
		status = index_names(check, err);
	if (!status)
		status = check_buffers(check, err);
	if (!status)
		status = check->plan->delta ? check_entries(check, err) : check_tensors(check, err);
	if (!status)
		status = check_end(check, err);
	if (!status)
		status = check_extents(check, err);
	if (!status)
		status = check_views(check, err);
	return status;
}

gpusnap_status gsn_plan_check(
	const gpusnap_plan *plan, const gpusnap_header *header, gpusnap_error *err)
{
	size_t most = plan->buffer_count + (plan->delta ? plan->delta->entry_count
							: gpusnap_header_tensor_count(header));
	struct check check = {
		.plan = plan,
		.header = header,
		.extents = gsn_alloc(most, sizeof *check.extents),
		.listed = plan->delta ? gsn_alloc(plan->buffer_count, sizeof *check.listed) : NULL,
	};
	gpusnap_status status;

	status = check.extents && !check.listed == !plan->delta
			 ? run_checks(&check, err)
			 : gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu extents", most);
	gsn_free(check.regions);
	gsn_free(check.names);
	gsn_free(check.extents);
	gsn_free(check.listed);
	return status;
}

gpusnap_status gpusnap_plan_match_seal(const gpusnap_plan *plan, const gpusnap_header *header,
	const gpusnap_seal *seal, gpusnap_error *err)
{
	const gpusnap_tensor *leaves = gpusnap_header_find(header, GPUSNAP_LEAVES_NAME);
	const gpusnap_tensor *last = gpusnap_header_find(header, GPUSNAP_SEAL_NAME);
	uint64_t data = gpusnap_header_data_offset(header);
	char a[37], b[37];

	if (memcmp(plan->uuid, seal->uuid, GPUSNAP_UUID_BYTES) != 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "the plan is of snapshot %s, the seal of %s",
			gpusnap_uuid_format(plan->uuid, a), gpusnap_uuid_format(seal->uuid, b));
	if (seal->header_bytes != data)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"data begins at %" PRIu64 ", the seal says %" PRIu64, data,
			seal->header_bytes);
	if (!leaves || leaves->shape[0] != seal->leaf_count)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"the leaf table holds %" PRIu64 " digests, the seal says %" PRIu64,
			leaves ? leaves->shape[0] : 0, seal->leaf_count);
	if (!plan->delta != gpusnap_digest_is_zero(seal->parent_root))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "the plan is of a %s, the seal of a %s",
			plan->delta ? "delta" : "full snapshot",
			plan->delta ? "full snapshot" : "delta");
	if (!last || data + last->end != seal->file_bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensors end at %" PRIu64 ", the seal says %" PRIu64,
			last ? data + last->end : data, seal->file_bytes);
	return GPUSNAP_OK;
}
