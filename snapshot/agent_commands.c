/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in commands other than show: arguments to calls of the library, reports to JSON. */
#include <string.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/agent_args.h"
#include "snapshot/agent_state.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static gpusnap_status ping(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_status s = gsn_args_parse(args, "ping", NULL, 0, err);

	(void)registry;
	(void)user;
	if (s)
		return s;
	return gsn_agent_result(gpusnap_json_pack("{s:I, s:s}", "pid", (long long)getpid(),
					"version", GPUSNAP_VERSION),
		ret_result, err);
}

/* ---- I/O options and reports ---- */

struct io_args {
	const char *path;
	const char *engine;
	const char *direct;
	uint64_t depth;
	uint64_t block_bytes;
};

static gpusnap_status resolve_io(
	const struct io_args *args, gpusnap_io_options *ret_io, gpusnap_error *err)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_status s = GPUSNAP_OK;

	if (args->engine)
		s = gpusnap_io_engine_parse(args->engine, &io.engine, err);
	if (!s && args->direct)
		s = gpusnap_io_direct_parse(args->direct, &io.direct, err);
	if (!s && args->depth > UINT32_MAX)
		s = gsn_fail(err, GPUSNAP_E_INVALID, "'depth' is %llu, at most %u",
			(unsigned long long)args->depth, UINT32_MAX);
	io.depth = (uint32_t)args->depth;
	io.block_bytes = args->block_bytes;
	*ret_io = io;
	return s;
}

/* Add a member, consuming both on failure. */
static gpusnap_json *with(gpusnap_json *object, const char *key, gpusnap_json *value)
{
	if (object && gpusnap_json_set(object, key, value) == GPUSNAP_OK)
		return object;
	if (!object)
		gpusnap_json_free(value);
	gpusnap_json_free(object);
	return NULL;
}

/* Members that tell how files were read or written. NULL: no memory. */
static gpusnap_json *pack_engine(const gpusnap_io_report *io)
{
	return gpusnap_json_pack("{s:s, s:b, s:b, s:I, s:I, s:s, s:I, s:s}", "engine", io->engine,
		"direct", (int)io->direct, "registered", (int)io->registered, "depth",
		(long long)io->depth, "block_bytes", (long long)io->block_bytes, "file_system",
		io->file_system, "alignment", (long long)io->alignment, "reason", io->reason);
}

/* Members that save and restore share. NULL: no memory. */
static gpusnap_json *pack_io(
	const gpusnap_io_report *io, uint64_t state_bytes, gpusnap_digest root, const char *path)
{
	gpusnap_json *object = pack_engine(io);
	char text[GPUSNAP_DIGEST_TEXT];

	object = with(object, "bytes", gpusnap_json_pack("I", (long long)io->bytes));
	object = with(object, "state_bytes", gpusnap_json_pack("I", (long long)state_bytes));
	object = with(object, "seconds", gpusnap_json_pack("f", io->seconds));
	object = with(object, "root", gpusnap_json_pack("s", gpusnap_digest_format(root, text)));
	return with(object, "path", gpusnap_json_pack("s", path));
}

/* NULL: no memory. */
static gpusnap_json *pack_saved(const gpusnap_save_report *report, const char *path)
{
	char text[GPUSNAP_DIGEST_TEXT], uuid[37];
	gpusnap_json *result = pack_io(&report->io, report->state_bytes, report->root, path);

	result = with(result, "unclaimed_bytes",
		gpusnap_json_pack("I", (long long)report->unclaimed_bytes));
	result = with(
		result, "uuid", gpusnap_json_pack("s", gpusnap_uuid_format(report->uuid, uuid)));
	result = with(result, "leaves", gpusnap_json_pack("I", (long long)report->leaves));
	result = with(result, "leaves_written",
		gpusnap_json_pack("I", (long long)report->leaves_written));
	result = with(result, "depth", gpusnap_json_pack("I", (long long)report->depth));
	if (report->depth) {
		result = with(result, "parent",
			gpusnap_json_pack("s", gpusnap_digest_format(report->parent_root, text)));
		result = with(
			result, "digest_seconds", gpusnap_json_pack("f", report->digest_seconds));
	}
	if (*report->read_back) {
		result = with(result, "read_back", gpusnap_json_pack("s", report->read_back));
		result = with(result, "read_back_seconds",
			gpusnap_json_pack("f", report->read_back_seconds));
	}
	return result;
}

static gpusnap_status save(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct io_args io = {0};
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_json *parent_dirs = NULL;
	const struct gsn_arg members[] = {
		{"path", &io.path, GSN_ARG_PATH, true},
		{"replace", &options.replace, GSN_ARG_BOOLEAN, false},
		{"read_back", &options.read_back, GSN_ARG_BOOLEAN, false},
		{"parent", &options.parent, GSN_ARG_PATH, false},
		{"parent_dirs", &parent_dirs, GSN_ARG_PATHS, false},
		{"engine", &io.engine, GSN_ARG_TEXT, false},
		{"direct", &io.direct, GSN_ARG_TEXT, false},
		{"depth", &io.depth, GSN_ARG_NUMBER, false},
		{"block_bytes", &io.block_bytes, GSN_ARG_NUMBER, false},
	};
	gpusnap_save_report report;
	const char **list = NULL;
	gpusnap_status s = gsn_args_parse(args, "save", members, COUNT(members), err);

	(void)user;
	if (!s)
		s = resolve_io(&io, &options.io, err);
	if (!s)
		s = gsn_args_list(parent_dirs, &list, &options.parent_dir_count, err);
	options.parent_dirs = list;
	if (!s)
		s = gpusnap_save(registry, io.path, &options, &report, err);
	gsn_free(list);
	return s ? s : gsn_agent_result(pack_saved(&report, io.path), ret_result, err);
}

static gpusnap_status restore(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct io_args io = {0};
	gpusnap_json *parent_dirs = NULL;
	const struct gsn_arg members[] = {
		{"path", &io.path, GSN_ARG_PATH, true},
		{"parent_dirs", &parent_dirs, GSN_ARG_PATHS, false},
		{"engine", &io.engine, GSN_ARG_TEXT, false},
		{"direct", &io.direct, GSN_ARG_TEXT, false},
		{"depth", &io.depth, GSN_ARG_NUMBER, false},
		{"block_bytes", &io.block_bytes, GSN_ARG_NUMBER, false},
	};
	gpusnap_restore_report report;
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_io_options options;
	gpusnap_status s = gsn_args_parse(args, "restore", members, COUNT(members), err);

	(void)user;
	if (!s)
		s = resolve_io(&io, &options, err);
	if (!s)
		s = gsn_args_open(io.path, parent_dirs, &snapshot, err);
	if (!s)
		s = gpusnap_restore_snapshot(registry, snapshot, &options, &report, err);
	gpusnap_snapshot_close(snapshot);
	if (s)
		return s;
	return gsn_agent_result(
		pack_io(&report.io, report.state_bytes, report.root, io.path), ret_result, err);
}

/* ---- offload and resume ---- */

/* The strings of `tags` as the library takes them; freed by the caller, NULL for no array. */
static gpusnap_status take_tags(gpusnap_json *tags, gpusnap_offload_options *options,
	const char ***ret_list, gpusnap_error *err)
{
	gpusnap_status s;

	if (tags && gpusnap_json_size(tags) == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"'tags' is empty; leave it out to name all regions");
	s = gsn_args_list(tags, ret_list, &options->tag_count, err);
	if (!s)
		options->tags = *ret_list;
	return s;
}

static gpusnap_status parse_backing(
	const char *name, gpusnap_backing *ret_backing, gpusnap_error *err)
{
	static const char *const names[] = {
		[GPUSNAP_BACKING_AUTO] = "auto",
		[GPUSNAP_BACKING_ARENA] = "arena",
		[GPUSNAP_BACKING_SNAPSHOT] = "snapshot",
	};

	for (size_t i = 0; i < COUNT(names); i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		*ret_backing = (gpusnap_backing)i;
		return GPUSNAP_OK;
	}
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"'backing' is '%.64s', it must be auto, arena or snapshot", name);
}

static gpusnap_status offload(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_json *tags = NULL;
	const char *backing = "auto";
	const struct gsn_arg members[] = {
		{"tags", &tags, GSN_ARG_TEXTS, false},
		{"backing", &backing, GSN_ARG_TEXT, false},
	};
	gpusnap_offload_report report;
	const char **list = NULL;
	gpusnap_status s = gsn_args_parse(args, "offload", members, COUNT(members), err);

	(void)user;
	if (!s)
		s = parse_backing(backing, &options.backing, err);
	if (!s)
		s = take_tags(tags, &options, &list, err);
	if (!s)
		s = gpusnap_offload(registry, &options, &report, err);
	gsn_free(list);
	if (s)
		return s;
	return gsn_agent_result(gpusnap_json_pack("{s:I, s:I, s:I, s:I, s:f, s:s}", "regions",
					(long long)report.regions, "bytes", (long long)report.bytes,
					"copied_bytes", (long long)report.copied_bytes,
					"freed_bytes", (long long)report.freed_bytes, "seconds",
					report.seconds, "backing", report.backing),
		ret_result, err);
}

static gpusnap_status resume(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct io_args io = {0};
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_json *tags = NULL;
	const struct gsn_arg members[] = {
		{"tags", &tags, GSN_ARG_TEXTS, false},
		{"engine", &io.engine, GSN_ARG_TEXT, false},
		{"direct", &io.direct, GSN_ARG_TEXT, false},
		{"depth", &io.depth, GSN_ARG_NUMBER, false},
		{"block_bytes", &io.block_bytes, GSN_ARG_NUMBER, false},
	};
	gpusnap_resume_report report;
	gpusnap_json *result;
	const char **list = NULL;
	gpusnap_status s = gsn_args_parse(args, "resume", members, COUNT(members), err);

	(void)user;
	if (!s)
		s = resolve_io(&io, &options.io, err);
	if (!s)
		s = take_tags(tags, &options, &list, err);
	if (!s)
		s = gpusnap_resume(registry, &options, &report, err);
	gsn_free(list);
	if (s)
		return s;
	result = report.io.engine ? pack_engine(&report.io) : gpusnap_json_pack("{}");
	result = with(result, "regions", gpusnap_json_pack("I", (long long)report.regions));
	result = with(result, "bytes", gpusnap_json_pack("I", (long long)report.bytes));
	result = with(result, "seconds", gpusnap_json_pack("f", report.seconds));
	return gsn_agent_result(result, ret_result, err);
}

/* ---- verify ---- */

static gpusnap_json *list_damage(const gpusnap_damage *damage)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (size_t i = 0; list && i < damage->count; i++) {
		const gpusnap_damage_item *item = &damage->items[i];

		if (gpusnap_json_append(
			    list, gpusnap_json_pack("{s:s, s:I, s:I, s:I}", "buffer", item->buffer,
					  "leaf", (long long)item->leaf, "leaf_count",
					  (long long)item->leaf_count, "file_offset",
					  (long long)item->file_offset))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_status baseline_of_file(
	const char *path, gpusnap_json *parent_dirs, gpusnap_baseline **out, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_status s = gsn_args_open(path, parent_dirs, &snapshot, err);

	if (s)
		return s;
	s = gpusnap_baseline_from_snapshot(snapshot, out, err);
	gpusnap_snapshot_close(snapshot);
	return s;
}

static gpusnap_status verify_against(gpusnap_registry *registry, const gpusnap_baseline *baseline,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_damage damage;
	char root[GPUSNAP_DIGEST_TEXT];
	gpusnap_status s = gpusnap_verify(registry, baseline, &damage, err);

	if (s)
		return s;
	s = gsn_agent_result(
		gpusnap_json_pack("{s:b, s:s, s:I, s:I, s:o}", "ok", damage.count == 0, "root",
			gpusnap_digest_format(gpusnap_baseline_root(baseline), root), "buffers",
			(long long)damage.buffers, "bytes", (long long)damage.bytes, "damage",
			list_damage(&damage)),
		ret_result, err);
	gpusnap_damage_release(&damage);
	return s;
}

static gpusnap_status verify_own(
	gpusnap_registry *registry, gpusnap_json **ret_result, gpusnap_error *err)
{
	const gpusnap_baseline *baseline;
	gpusnap_status s;

	/* The baseline is borrowed: nobody may replace it meanwhile. */
	gpusnap_registry_hold(registry);
	baseline = gpusnap_registry_baseline(registry);
	if (baseline)
		s = verify_against(registry, baseline, ret_result, err);
	else
		s = gsn_fail(err, GPUSNAP_E_STATE,
			"there is nothing to verify against: save or restore first, or name a "
			"file");
	gpusnap_registry_release(registry);
	return s;
}

static gpusnap_status verify(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	const char *file = NULL;
	gpusnap_json *parent_dirs = NULL;
	const struct gsn_arg members[] = {
		{"file", &file, GSN_ARG_PATH, false},
		{"parent_dirs", &parent_dirs, GSN_ARG_PATHS, false},
	};
	gpusnap_baseline *baseline;
	gpusnap_status s = gsn_args_parse(args, "verify", members, COUNT(members), err);

	(void)user;
	if (s)
		return s;
	if (!file)
		return verify_own(registry, ret_result, err);
	s = baseline_of_file(file, parent_dirs, &baseline, err);
	if (s)
		return s;
	s = verify_against(registry, baseline, ret_result, err);
	gpusnap_baseline_free(baseline);
	return s;
}

const struct gsn_agent_builtin gsn_agent_builtins[] = {
	{"ping", ping},
	{"show", gsn_agent_show},
	{"save", save},
	{"offload", offload},
	{"resume", resume},
	{"restore", restore},
	{"verify", verify},
	{NULL, NULL},
};
