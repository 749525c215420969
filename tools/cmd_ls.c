/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap ls, diff: what snapshots hold, without reading their data. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/output.h"

struct file_arguments {
	struct common_options common;
	struct parent_options parents;
	const char *files[2];
	unsigned wanted;
	unsigned count;
};

static error_t parse_files(int key, char *arg, struct argp_state *state)
{
	struct file_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->parents;
		state->child_inputs[1] = &a->common;
		return 0;
	case ARGP_KEY_ARG:
		if (a->count == a->wanted)
			argp_error(state, "%s, not more: '%s'", a->wanted == 1 ? "FILE" : "A and B",
				arg);
		a->files[a->count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (a->count < a->wanted)
			argp_error(state, "%s missing", a->wanted == 1 ? "FILE is" : "A or B is");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {
	{&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};

static gpusnap_json *shape_list(const gpusnap_snapshot_entry *e)
{
	gpusnap_json *shape = gpusnap_json_pack("[]");

	for (uint32_t i = 0; i < e->rank; i++)
		if (gpusnap_json_append(shape, gpusnap_json_pack("I", (long long)e->shape[i]))) {
			gpusnap_json_free(shape);
			return NULL;
		}
	return shape;
}

static gpusnap_json *entry_list(const gpusnap_snapshot *snapshot)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	char digest[GPUSNAP_DIGEST_TEXT];

	for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++) {
		const gpusnap_snapshot_entry *e = gpusnap_snapshot_entry_at(snapshot, i);

		if (gpusnap_json_append(list,
			    gpusnap_json_pack("{s:s,s:s,s:o,s:I,s:I,s:s}", "name", e->name, "dtype",
				    gpusnap_dtype_name(e->dtype), "shape", shape_list(e), "bytes",
				    (long long)e->bytes, "file_offset", (long long)e->file_offset,
				    "digest", gpusnap_digest_format(e->digest, digest)))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

/* The files of the chain, this one first. NULL: no memory. */
static gpusnap_json *chain_list(const gpusnap_snapshot *snapshot)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	char root[GPUSNAP_DIGEST_TEXT];

	for (size_t i = 0; i < gpusnap_snapshot_link_count(snapshot); i++) {
		const gpusnap_seal *seal = gpusnap_snapshot_link_seal(snapshot, i);

		if (gpusnap_json_append(
			    list, gpusnap_json_pack("{s:s,s:s,s:I}", "path",
					  gpusnap_snapshot_link_path(snapshot, i), "root",
					  gpusnap_digest_format(seal->root, root), "bytes",
					  (long long)seal->file_bytes))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *list_result(const gpusnap_snapshot *snapshot)
{
	const gpusnap_seal *seal = gpusnap_snapshot_seal(snapshot);
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	char root[GPUSNAP_DIGEST_TEXT];
	char parent[GPUSNAP_DIGEST_TEXT];
	char uuid[37];
	int full = gpusnap_digest_is_zero(seal->parent_root);

	return gpusnap_json_pack("{s:s,s:s?,s:I,s:o,s:s,s:s,s:[I,I],s:[I,I],s:I,s:o}", "root",
		gpusnap_digest_format(seal->root, root), "parent",
		full ? NULL : gpusnap_digest_format(seal->parent_root, parent), "depth",
		(long long)gpusnap_snapshot_link_count(snapshot) - 1, "chain", chain_list(snapshot),
		"uuid", gpusnap_uuid_format(seal->uuid, uuid), "writer", plan->writer, "tp",
		(long long)plan->tp_rank, (long long)plan->tp_size, "ep", (long long)plan->ep_rank,
		(long long)plan->ep_size, "bytes", (long long)seal->file_bytes, "buffers",
		entry_list(snapshot));
}

static void print_parents(const gpusnap_snapshot *snapshot)
{
	size_t links = gpusnap_snapshot_link_count(snapshot);
	char digest[GPUSNAP_DIGEST_TEXT];

	if (links > 1)
		(void)printf("delta of depth %zu\n", links - 1);
	for (size_t i = 1; i < links; i++) {
		(void)printf("parent %s ",
			gpusnap_digest_format(
				gpusnap_snapshot_link_seal(snapshot, i)->root, digest));
		output_name(gpusnap_snapshot_link_path(snapshot, i), 0);
		(void)printf("\n");
	}
}

static void print_entries(const gpusnap_snapshot *snapshot)
{
	const gpusnap_seal *seal = gpusnap_snapshot_seal(snapshot);
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	char digest[GPUSNAP_DIGEST_TEXT];
	char size[SIZE_TEXT];
	char uuid[37];

	(void)printf("%s by ", format_size(seal->file_bytes, size));
	output_name(plan->writer, 0);
	(void)printf(", tp %u/%u, ep %u/%u\nuuid %s\nroot %s\n", plan->tp_rank, plan->tp_size,
		plan->ep_rank, plan->ep_size, gpusnap_uuid_format(seal->uuid, uuid),
		gpusnap_digest_format(seal->root, digest));
	print_parents(snapshot);
	for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++) {
		const gpusnap_snapshot_entry *e = gpusnap_snapshot_entry_at(snapshot, i);

		(void)printf("%12s  %-8s %.12s  ", format_size(e->bytes, size),
			gpusnap_dtype_name(e->dtype), gpusnap_digest_format(e->digest, digest));
		output_name(e->name, 0);
		(void)printf(" [");
		for (uint32_t d = 0; d < e->rank; d++)
			(void)printf("%s%llu", d ? "," : "", (unsigned long long)e->shape[d]);
		(void)printf("]\n");
	}
}

int cmd_ls(int argc, char **argv)
{
	static const struct argp argp = {NULL, parse_files, "FILE",
		"List what a snapshot holds: buffers and unclaimed bytes with their digests.",
		children, NULL, NULL};
	struct file_arguments a = {.wanted = 1};
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_error err = {0};
	int status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	if (open_snapshot(a.files[0], &a.parents, &snapshot, &err))
		return output_error(argv[0], a.common.json, &err);
	if (a.common.json) {
		status = output_json(list_result(snapshot), 0);
	} else {
		print_entries(snapshot);
		status = output_flush();
	}
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_json *difference_list(const gpusnap_differences *differences)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (size_t i = 0; i < differences->count; i++) {
		const gpusnap_difference *d = &differences->items[i];

		if (gpusnap_json_append(
			    list, gpusnap_json_pack("{s:s,s:s,s:I,s:I}", "name", d->name, "what",
					  d->what, "leaves_changed", (long long)d->leaves_changed,
					  "bytes_changed", (long long)d->bytes_changed))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static void print_differences(const gpusnap_differences *differences)
{
	char size[SIZE_TEXT];

	for (size_t i = 0; i < differences->count; i++) {
		const gpusnap_difference *d = &differences->items[i];

		output_name(d->name, 0);
		(void)printf(": %s, %llu leaves, %s\n", d->what,
			(unsigned long long)d->leaves_changed, format_size(d->bytes_changed, size));
	}
	(void)puts(differences->count ? "different" : "same");
}

static int report_differences(
	const struct file_arguments *a, const gpusnap_differences *differences)
{
	int status = differences->count ? 1 : 0;

	if (a->common.json)
		return output_json(gpusnap_json_pack("{s:b,s:o}", "same", differences->count == 0,
					   "buffers", difference_list(differences)),
			status);
	print_differences(differences);
	return output_flush() ? 3 : status;
}

int cmd_diff(int argc, char **argv)
{
	static const struct argp argp = {NULL, parse_files, "A B",
		"Compare two snapshots by their digests; exit status 1 when they differ.", children,
		NULL, NULL};
	struct file_arguments a = {.wanted = 2};
	gpusnap_snapshot *first = NULL;
	gpusnap_snapshot *second = NULL;
	gpusnap_differences differences = {0};
	gpusnap_error err = {0};
	gpusnap_status s;
	int status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	s = open_snapshot(a.files[0], &a.parents, &first, &err);
	if (!s)
		s = open_snapshot(a.files[1], &a.parents, &second, &err);
	if (!s)
		s = gpusnap_snapshot_diff(first, second, &differences, &err);
	status = s ? output_error(argv[0], a.common.json, &err)
		   : report_differences(&a, &differences);
	gpusnap_differences_release(&differences);
	gpusnap_snapshot_close(first);
	gpusnap_snapshot_close(second);
	return status;
}
