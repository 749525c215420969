/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load_table.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/output.h"

enum { NAME_WIDTH = 48, SHAPE_TEXT = 64 };

static uint64_t count(const gpusnap_json *object, const char *key)
{
	return (uint64_t)gpusnap_json_integer(gpusnap_json_get(object, key), 0);
}

static void print_totals(const gpusnap_json *plan)
{
	const gpusnap_json *views = gpusnap_json_get(plan, "views");
	const gpusnap_json *copies = gpusnap_json_get(plan, "copies");
	const gpusnap_json *bytes = gpusnap_json_get(plan, "bytes");
	char copied[SIZE_TEXT], needed[SIZE_TEXT], read[SIZE_TEXT], padding[SIZE_TEXT];

	(void)printf("%" PRIu64 " tensors of %zu files, %" PRIu64 " views: %" PRIu64
		     " whole, %" PRIu64 " oversized, %" PRIu64 " strided; %" PRIu64 " compacted\n",
		count(plan, "tensors"), gpusnap_json_size(gpusnap_json_get(plan, "files")),
		count(views, "count"), count(views, "whole"), count(views, "oversized"),
		count(views, "strided"), count(views, "compacted"));
	(void)printf("%" PRIu64 " runs to read; %" PRIu64 " copies to the device, %" PRIu64
		     " without compaction\n",
		count(plan, "runs"), count(copies, "after"), count(copies, "before"));
	(void)printf("%s needed, %s read, %s copied, %s of it padding\n",
		format_size(count(bytes, "needed"), needed),
		format_size(count(bytes, "read"), read),
		format_size(count(bytes, "copied"), copied),
		format_size(count(bytes, "padding"), padding));
}

static void format_shape(const gpusnap_json *shape, char text[SHAPE_TEXT])
{
	size_t used = 1;

	text[0] = '[';
	for (size_t i = 0; i < gpusnap_json_size(shape) && used < SHAPE_TEXT; i++)
		used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%" PRId64,
			i ? ", " : "", gpusnap_json_integer(gpusnap_json_at(shape, i), 0));
	if (used < SHAPE_TEXT - 1)
		(void)snprintf(text + used, SHAPE_TEXT - used, "]");
}

static void print_buffer(const gpusnap_json *buffer)
{
	char size[SIZE_TEXT], shape[SHAPE_TEXT];

	format_shape(gpusnap_json_get(buffer, "shape"), shape);
	(void)printf("%10s %6" PRIu64 "  %-11s %-8s ", format_size(count(buffer, "bytes"), size),
		count(buffer, "views"), gpusnap_json_text(gpusnap_json_get(buffer, "role")),
		gpusnap_json_text(gpusnap_json_get(buffer, "dtype")));
	output_name(gpusnap_json_text(gpusnap_json_get(buffer, "name")), NAME_WIDTH);
	(void)printf(" %s\n", shape);
}

int load_table_print(gpusnap_json *plan)
{
	const gpusnap_json *buffers = gpusnap_json_get(plan, "buffers");

	print_totals(plan);
	(void)printf("%10s %6s  %-11s %-8s %-*s %s\n", "bytes", "views", "role", "dtype",
		NAME_WIDTH, "buffer", "shape");
	for (size_t i = 0; i < gpusnap_json_size(buffers); i++)
		print_buffer(gpusnap_json_at(buffers, i));
	return output_flush();
}
