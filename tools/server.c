/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/server.h"

#include <sys/stat.h>

#include "formats/base/fail.h"

static const char masks_record[] = "unregistered_masks";
static const char model_record[] = "model";

/* Where masks without a name lie, so that a fresh process can find them in the snapshot. */
static gpusnap_status record_masks(
	gpusnap_registry *registry, const gpusnap_loaded *loaded, gpusnap_error *err)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	gpusnap_status s = GPUSNAP_OK;

	for (uint32_t i = 0; !s && i < loaded->mask_count; i++)
		s = gpusnap_json_append(list, gpusnap_json_pack("{s:I,s:I,s:I}", "layer",
						      (long long)loaded->masks[i].layer, "region",
						      (long long)loaded->masks[i].region, "offset",
						      (long long)loaded->masks[i].offset));
	s = s ? gsn_fail(err, s, "out of memory")
	      : gpusnap_record_set(registry, masks_record, list, err);
	gpusnap_json_free(list);
	return s;
}

static gpusnap_status bind_mask(gpusnap_dispatch *dispatch, gpusnap_json *row, gpusnap_error *err)
{
	long long layer;
	long long region;
	long long offset;
	gpusnap_status s = gpusnap_json_unpack(row, "record of an unregistered mask", err,
		"{s:I,s:I,s:I}", "layer", &layer, "region", &region, "offset", &offset);

	if (s)
		return s;
	if (layer < 0 || layer > UINT32_MAX || region < 0 || region > UINT32_MAX || offset < 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"record of an unregistered mask: layer %lld, region %lld, offset %lld: "
			"expected 0 to 2^32 - 1, offsets 0 or more",
			layer, region, offset);
	return gpusnap_dispatch_bind_mask(
		dispatch, (uint32_t)layer, (uint32_t)region, (uint64_t)offset, err);
}

static gpusnap_status bind_masks(struct server *server, gpusnap_error *err)
{
	gpusnap_json *list = gpusnap_record_get(server->registry, masks_record);
	gpusnap_status s = GPUSNAP_OK;

	if (list && gpusnap_json_kind_of(list) != GPUSNAP_JSON_ARRAY)
		s = gsn_fail(err, GPUSNAP_E_FORMAT,
			"record '%s' is no list of masks; save the snapshot again", masks_record);
	for (size_t i = 0; !s && i < gpusnap_json_size(list); i++)
		s = bind_mask(server->dispatch, gpusnap_json_at(list, i), err);
	gpusnap_json_free(list);
	return s;
}

static gpusnap_status bind_model(struct server *server, gpusnap_error *err)
{
	gpusnap_json *json = gpusnap_record_get(server->registry, model_record);
	gpusnap_moe_model *model = NULL;
	gpusnap_status s;

	if (!json)
		return GPUSNAP_OK;
	s = gpusnap_moe_model_decode(json, &model, err);
	gpusnap_json_free(json);
	if (!s)
		s = gpusnap_dispatch_create(server->registry, model, &server->dispatch, err);
	gpusnap_moe_model_free(model);
	return s ? s : bind_masks(server, err);
}

static gpusnap_status load_checkpoint(struct server *server, const char *device, const char *path,
	const gpusnap_load_options *options, gpusnap_error *err)
{
	gpusnap_registry_options registry_options = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_loaded *loaded = &server->loaded;
	gpusnap_status s = gpusnap_device_open(device, &server->device, err);

	if (s)
		return s;
	registry_options.tp_rank = options->tp_rank;
	registry_options.tp_size = options->tp_size;
	registry_options.ep_rank = options->ep_rank;
	registry_options.ep_size = options->ep_size;
	s = gpusnap_registry_create(server->device, &registry_options, &server->registry, err);
	if (!s)
		s = gpusnap_load(server->registry, path, options, loaded, err);
	if (!s && loaded->mask_count)
		s = record_masks(server->registry, loaded, err);
	if (!s)
		s = bind_model(server, err);
	return s;
}

gpusnap_status server_from_snapshot(struct server *server, const char *device,
	gpusnap_snapshot *snapshot, const gpusnap_io_options *io, gpusnap_error *err)
{
	gpusnap_registry_options registry_options = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_restore_report report;
	gpusnap_status s = gpusnap_device_open(device, &server->device, err);

	if (!s)
		s = gpusnap_registry_from_open(server->device, snapshot, &registry_options, io,
			&server->registry, &report, err);
	if (s)
		return s;
	server->loaded.report = (gpusnap_load_report){
		.bytes = report.state_bytes,
		.bytes_needed = report.io.bytes,
		.bytes_read = report.io.bytes,
		.seconds = report.io.seconds,
		.io = report.io,
	};
	return bind_model(server, err);
}

/* ---- a snapshot in the place of a checkpoint ---- */

/* NULL in *ret_snapshot: the path leads to something else. */
static gpusnap_status try_snapshot(
	const char *path, gpusnap_snapshot **ret_snapshot, gpusnap_error *err)
{
	struct stat st;
	gpusnap_status s;

	*ret_snapshot = NULL;
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return GPUSNAP_OK;
	s = gpusnap_snapshot_open(path, ret_snapshot, err);
	return s == GPUSNAP_E_FORMAT ? GPUSNAP_OK : s;
}

/* A snapshot is the state of one rank already: it cannot be cut into others. */
static gpusnap_status check_snapshot_rank(
	const gpusnap_snapshot *snapshot, const gpusnap_load_options *options, gpusnap_error *err)
{
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	bool same_tp = options->tp_size == plan->tp_size && options->tp_rank == plan->tp_rank;
	bool same_ep = options->ep_size == plan->ep_size && options->ep_rank == plan->ep_rank;

	if ((same_tp || !options->tp_size) && (same_ep || !options->ep_size))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"'%s' is a snapshot of rank tp %u/%u ep %u/%u, but tp %u/%u ep %u/%u was asked "
		"for; "
		"load the checkpoint that it was made of",
		gpusnap_snapshot_path(snapshot), plan->tp_rank, plan->tp_size, plan->ep_rank,
		plan->ep_size, options->tp_rank, options->tp_size ? options->tp_size : 1,
		options->ep_rank, options->ep_size ? options->ep_size : 1);
}

static gpusnap_status load_snapshot(struct server *server, const char *device,
	gpusnap_snapshot *snapshot, const gpusnap_load_options *options, gpusnap_error *err)
{
	gpusnap_load_report *report = &server->loaded.report;
	gpusnap_status s = check_snapshot_rank(snapshot, options, err);

	if (!s)
		s = server_from_snapshot(server, device, snapshot, &options->io, err);
	if (s)
		return s;
	report->tensors = report->views = gpusnap_snapshot_entry_count(snapshot);
	report->note = "it is a snapshot: taken as it was saved";
	return GPUSNAP_OK;
}

gpusnap_status server_load(struct server *server, const char *device, const char *path,
	const gpusnap_load_options *options, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_status s = try_snapshot(path, &snapshot, err);

	if (s)
		return s;
	s = snapshot ? load_snapshot(server, device, snapshot, options, err)
		     : load_checkpoint(server, device, path, options, err);
	gpusnap_snapshot_close(snapshot);
	return s;
}

/* Stands in for the commands that need a dispatcher. */
static gpusnap_status no_layers_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	(void)registry;
	(void)user;
	(void)args;
	(void)ret_result;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"the state describes no MoE layer to run; verify compares its bytes");
}

static gpusnap_status refuse_inject(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	(void)registry;
	(void)user;
	(void)args;
	(void)ret_result;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"this process may not be damaged; it was started without --allow-inject");
}

gpusnap_status server_listen(
	struct server *server, const char *socket, bool allow_inject, gpusnap_error *err)
{
	gpusnap_status s = gpusnap_agent_start(server->registry, socket, &server->agent, err);

	if (!s && server->dispatch)
		s = gpusnap_dispatch_serve(server->dispatch, server->agent, err);
	if (!s && server->dispatch)
		s = gpusnap_agent_add(server->agent, "reference", reference_command, server, err);
	if (!s && !server->dispatch)
		s = gpusnap_agent_add(server->agent, "validate", no_layers_command, NULL, err);
	if (!s && !server->dispatch)
		s = gpusnap_agent_add(server->agent, "reference", no_layers_command, NULL, err);
	if (!s)
		s = gpusnap_agent_add(server->agent, "inject",
			allow_inject ? inject_command : refuse_inject, server, err);
	return s;
}

void server_close(struct server *server)
{
	gpusnap_agent_stop(server->agent);
	gpusnap_dispatch_free(server->dispatch);
	gpusnap_loaded_release(&server->loaded);
	gpusnap_registry_free(server->registry);
	gpusnap_device_close(server->device);
	*server = (struct server)SERVER_INIT;
}
