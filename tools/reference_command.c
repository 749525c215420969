/* SPDX-License-Identifier: Apache-2.0 */
/* The agent command "reference": every MoE block of a reference file against live state. */
#include <string.h>

#include "formats/base/fail.h"
#include "tools/reference_file.h"
#include "tools/server.h"

static const gpusnap_moe_layer *find_layer(const gpusnap_moe_model *model, const char *module)
{
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (strcmp(model->layers[i].module, module) == 0)
			return &model->layers[i];
	return NULL;
}

static gpusnap_status check_sizes(
	const struct reference_module *m, const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	if (m->hidden != layer->hidden)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"reference '%s.in' has hidden size %llu, the model %u", m->name,
			(unsigned long long)m->hidden, layer->hidden);
	if (m->top_k && m->top_k != layer->top_k)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"reference '%s.router2' has top-k %llu, the model %u", m->name,
			(unsigned long long)m->top_k, layer->top_k);
	if (layer->vocabulary && !m->values.token_ids)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"block '%s' reads its experts from a table by token id: the reference "
			"needs 'input_ids' of %u tokens",
			m->name, m->values.tokens);
	return GPUSNAP_OK;
}

struct comparison {
	gpusnap_json *modules;
	gpusnap_json *failures;
	uint32_t compared;
};

static gpusnap_status append_result(struct comparison *c, const gpusnap_moe_layer *layer,
	const gpusnap_reference_result *r, gpusnap_error *err)
{
	gpusnap_status s = gpusnap_json_append(
		c->modules, gpusnap_json_pack("{s:s,s:f,s:b,s:I,s:f,s:b}", "module", layer->module,
				    "max_error_over_bound", r->max_error_over_bound, "ids_equal",
				    r->ids_equal, "near_ties", (long long)r->near_ties,
				    "max_weight_error", r->max_weight_error, "agrees", r->agrees));

	if (!s && !r->agrees)
		s = gpusnap_json_append(c->failures,
			gpusnap_json_pack("{s:s,s:I,s:n,s:n,s:n,s:s}", "kind", "reference", "layer",
				(long long)layer->layer, "buffer", "expert", "leaf", "detail",
				r->ids_equal ? "output outside the bound"
					     : "router chose other experts"));
	c->compared++;
	return s ? gsn_fail(err, s, "out of memory") : GPUSNAP_OK;
}

/* Dense blocks are in some files too; only what has a router must be a MoE layer of the model. */
static gpusnap_status compare_module(gpusnap_dispatch *dispatch, const struct reference_module *m,
	struct comparison *c, gpusnap_error *err)
{
	const gpusnap_moe_layer *layer = find_layer(gpusnap_dispatch_model(dispatch), m->name);
	gpusnap_reference_result result;
	gpusnap_status s;

	if (!layer && !m->top_k)
		return GPUSNAP_OK;
	if (!layer)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"reference names MoE block '%s', which the model does not have", m->name);
	s = check_sizes(m, layer, err);
	if (!s)
		s = gpusnap_reference_compare(dispatch, &m->values, &result, err);
	return s ? s : append_result(c, layer, &result, err);
}

static gpusnap_status compare_file(gpusnap_dispatch *dispatch, const struct reference_file *file,
	struct comparison *c, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < file->count; i++)
		s = compare_module(dispatch, &file->modules[i], c, err);
	if (!s && c->compared == 0)
		s = gsn_fail(
			err, GPUSNAP_E_MISMATCH, "the reference names no MoE block of this model");
	return s;
}

gpusnap_status reference_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct server *server = user;
	struct reference_file file = {0};
	struct comparison c = {gpusnap_json_pack("[]"), gpusnap_json_pack("[]"), 0};
	const char *path;
	gpusnap_status s;

	(void)registry;
	s = gpusnap_json_unpack(args, "reference", err, "{s:s}", "file", &path);
	if (!s)
		s = reference_file_open(path, &file, err);
	if (!s)
		s = compare_file(server->dispatch, &file, &c, err);
	reference_file_close(&file);
	if (s) {
		gpusnap_json_free(c.modules);
		gpusnap_json_free(c.failures);
		return s;
	}
	*ret_result = gpusnap_json_pack("{s:b,s:I,s:I,s:I,s:n,s:o,s:o}", "proved",
		gpusnap_json_size(c.failures) == 0, "layers", (long long)c.compared,
		"experts_swept", 0LL, "steps", 0LL, "digest", "failures", c.failures, "reference",
		c.modules);
	return GPUSNAP_OK;
}
