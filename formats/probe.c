/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record "probe" of a snapshot: digests of a deterministic MoE decode, as JSON
 * (formats/gsnap.md, section "Record probe"), and the one digest over all of them.
 */
#include <gpusnap/probe.h>

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/fields.h"
#include "formats/moe_words.h"

enum {
	CHAIN_HEAD = 4 + 8 + 4 + 4 + 4,
	FIRST_SLOTS = GPUSNAP_MOE_NORM + 1, /* always in the chain, with or without a digest */
	CHAIN_LINK_MAX = GPUSNAP_DIGEST_BYTES * (1 + GPUSNAP_MOE_SLOTS) +
			 4 * (GPUSNAP_MOE_SLOTS - FIRST_SLOTS) + 4 + GPUSNAP_DIGEST_BYTES +
			 GPUSNAP_DIGEST_BYTES + 8 + 8,
};

/* Appends at a position that it moves on. */
static void put(uint8_t **at, const void *bytes, size_t length)
{
	memcpy(*at, bytes, length);
	*at += length;
}

static void put32(uint8_t **at, uint32_t value)
{
	gsn_put_le32(*at, value);
	*at += 4;
}

static void put64(uint8_t **at, uint64_t value)
{
	gsn_put_le64(*at, value);
	*at += 8;
}

static gpusnap_digest chain_layer(gpusnap_digest before, const gpusnap_probe_layer *layer)
{
	gpusnap_digest experts = gpusnap_digest_of(
		layer->experts, (size_t)layer->expert_count * GPUSNAP_DIGEST_BYTES);
	uint8_t bytes[CHAIN_LINK_MAX], *at = bytes;

	put(&at, before.bytes, GPUSNAP_DIGEST_BYTES);
	for (uint32_t i = 0; i < GPUSNAP_MOE_SLOTS; i++) {
		if (i >= FIRST_SLOTS && gpusnap_digest_is_zero(layer->control[i]))
			continue;
		if (i >= FIRST_SLOTS)
			put32(&at, i);
		put(&at, layer->control[i].bytes, GPUSNAP_DIGEST_BYTES);
	}
	put32(&at, layer->expert_count);
	put(&at, experts.bytes, GPUSNAP_DIGEST_BYTES);
	put(&at, layer->output.bytes, GPUSNAP_DIGEST_BYTES);
	put64(&at, layer->local_assignments);
	put64(&at, layer->remote_assignments);
	return gpusnap_digest_of(bytes, (size_t)(at - bytes));
}

gpusnap_digest gpusnap_probe_digest(const gpusnap_probe *probe)
{
	uint8_t bytes[CHAIN_HEAD], *at = bytes;
	gpusnap_digest digest;

	put32(&at, probe->version);
	put64(&at, probe->seed);
	put32(&at, probe->tokens);
	put32(&at, probe->steps);
	put32(&at, probe->layer_count);
	digest = gpusnap_digest_of(bytes, sizeof bytes);
	for (uint32_t i = 0; i < probe->layer_count; i++)
		digest = chain_layer(digest, &probe->layers[i]);
	return digest;
}

static gpusnap_json *encode_control(const gpusnap_probe_layer *layer)
{
	gpusnap_json *control = gpusnap_json_pack("{}");

	for (int i = 0; control && i < GPUSNAP_MOE_SLOTS; i++) {
		if (gpusnap_digest_is_zero(layer->control[i]))
			continue;
		if (gpusnap_json_set(control, gpusnap_moe_slot_name((gpusnap_moe_slot)i),
			    gsn_digest_encode(layer->control[i]))) {
			gpusnap_json_free(control);
			return NULL;
		}
	}
	return control;
}

static gpusnap_json *encode_experts(const gpusnap_probe_layer *layer)
{
	gpusnap_json *experts = gpusnap_json_pack("[]");

	for (uint32_t i = 0; experts && i < layer->expert_count; i++) {
		if (gpusnap_json_append(experts, gsn_digest_encode(layer->experts[i]))) {
			gpusnap_json_free(experts);
			return NULL;
		}
	}
	return experts;
}

static gpusnap_json *encode_layer(const gpusnap_probe_layer *layer)
{
	return gpusnap_json_pack("{s:o, s:o, s:o, s:o, s:o}", "control", encode_control(layer),
		"experts", encode_experts(layer), "output", gsn_digest_encode(layer->output),
		"local_assignments", gsn_u64_encode(layer->local_assignments), "remote_assignments",
		gsn_u64_encode(layer->remote_assignments));
}

gpusnap_json *gpusnap_probe_encode(const gpusnap_probe *probe)
{
	gpusnap_json *layers = gpusnap_json_pack("[]");

	for (uint32_t i = 0; layers && i < probe->layer_count; i++) {
		if (gpusnap_json_append(layers, encode_layer(&probe->layers[i]))) {
			gpusnap_json_free(layers);
			return NULL;
		}
	}
	return gpusnap_json_pack("{s:I, s:o, s:I, s:I, s:o, s:o}", "version",
		(long long)probe->version, "seed", gsn_u64_encode(probe->seed), "tokens",
		(long long)probe->tokens, "steps", (long long)probe->steps, "digest",
		gsn_digest_encode(probe->digest), "layers", layers);
}

static gpusnap_status decode_control(
	const gpusnap_json *json, gpusnap_probe_layer *layer, gpusnap_error *err)
{
	gpusnap_json *control;
	gpusnap_status status = gsn_field_object(json, "control", &control, err);

	for (void *at = status ? NULL : gpusnap_json_first(control); at && !status;
		at = gpusnap_json_next(control, at)) {
		gpusnap_moe_slot slot;

		status = gsn_moe_slot_parse(gpusnap_json_key(at), &slot, err);
		if (!status)
			status = gsn_field_digest(
				control, gpusnap_json_key(at), &layer->control[slot], err);
	}
	return status;
}

static gpusnap_status decode_experts(
	const gpusnap_json *json, gpusnap_probe_layer *layer, gpusnap_error *err)
{
	gpusnap_json *experts;
	gpusnap_status status =
		gsn_field_array(json, "experts", 1, GPUSNAP_EXPERTS_MAX, &experts, err);

	if (status)
		return status;
	layer->expert_count = (uint32_t)gpusnap_json_size(experts);
	layer->experts = gsn_alloc(layer->expert_count, sizeof *layer->experts);
	if (!layer->experts)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u expert digests",
			layer->expert_count);
	for (uint32_t i = 0; i < layer->expert_count && !status; i++) {
		const char *text = gpusnap_json_text(gpusnap_json_at(experts, i));

		status = gpusnap_digest_parse(text ? text : "", &layer->experts[i], err);
		if (status)
			gsn_error_prefix(err, "local expert %u", i);
	}
	return status;
}

static gpusnap_status decode_layer(
	const gpusnap_json *json, gpusnap_probe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = decode_control(json, layer, err);

	if (!status)
		status = decode_experts(json, layer, err);
	if (!status)
		status = gsn_field_digest(json, "output", &layer->output, err);
	if (!status)
		status = gsn_field_u64(
			json, "local_assignments", 0, INT64_MAX, &layer->local_assignments, err);
	if (!status)
		status = gsn_field_u64(
			json, "remote_assignments", 0, INT64_MAX, &layer->remote_assignments, err);
	return status;
}

static gpusnap_status check_version(const gpusnap_json *json, gpusnap_error *err)
{
	uint32_t version;
	gpusnap_status status = gsn_field_u32(json, "version", 1, UINT32_MAX, &version, err);

	if (!status && version != GPUSNAP_PROBE_VERSION)
		status = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"version %u, this build compares %u; record it again with this build",
			version, GPUSNAP_PROBE_VERSION);
	return status;
}

static gpusnap_status decode_head(
	const gpusnap_json *json, gpusnap_probe *probe, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_u64(json, "seed", 0, INT64_MAX, &probe->seed, err);

	if (!status)
		status = gsn_field_u32(
			json, "tokens", 1, GPUSNAP_PROBE_TOKENS_MAX, &probe->tokens, err);
	if (!status)
		status = gsn_field_u32(
			json, "steps", 1, GPUSNAP_PROBE_TOKENS_MAX, &probe->steps, err);
	if (!status)
		status = gsn_field_digest(json, "digest", &probe->digest, err);
	return status;
}

static gpusnap_status decode_layers(
	const gpusnap_json *layers, gpusnap_probe *probe, gpusnap_error *err)
{
	for (uint32_t i = 0; i < probe->layer_count; i++) {
		gpusnap_status status =
			decode_layer(gpusnap_json_at(layers, i), &probe->layers[i], err);

		if (status) {
			gsn_error_prefix(err, "layer at position %u", i);
			return status;
		}
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_digest(const gpusnap_probe *probe, gpusnap_error *err)
{
	gpusnap_digest computed = gpusnap_probe_digest(probe);
	char a[GPUSNAP_DIGEST_TEXT], b[GPUSNAP_DIGEST_TEXT];

	if (gpusnap_digest_equal(probe->digest, computed))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_CORRUPT, "digest is %s, its contents give %s",
		gpusnap_digest_format(probe->digest, a), gpusnap_digest_format(computed, b));
}

static gpusnap_status decode_probe(
	const gpusnap_json *json, gpusnap_probe **ret_probe, gpusnap_error *err)
{
	gpusnap_json *layers;
	gpusnap_probe *probe;
	gpusnap_status status =
		gsn_field_array(json, "layers", 1, GPUSNAP_MOE_LAYERS_MAX, &layers, err);

	if (status)
		return status;
	probe = gpusnap_probe_new((uint32_t)gpusnap_json_size(layers));
	if (!probe)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu layers",
			gpusnap_json_size(layers));
	status = decode_head(json, probe, err);
	if (!status)
		status = decode_layers(layers, probe, err);
	if (!status)
		status = check_digest(probe, err);
	if (status)
		gpusnap_probe_free(probe);
	else
		*ret_probe = probe;
	return status;
}

gpusnap_status gpusnap_probe_decode(gpusnap_json *json, gpusnap_probe **out, gpusnap_error *err)
{
	gpusnap_status status = check_version(json, err);

	if (!status)
		status = decode_probe(json, out, err);
	if (status)
		gsn_error_prefix(err, "probe record");
	return status;
}

gpusnap_probe *gpusnap_probe_new(uint32_t layer_count)
{
	gpusnap_probe *probe = gsn_alloc(1, sizeof *probe);

	if (!probe)
		return NULL;
	probe->version = GPUSNAP_PROBE_VERSION;
	probe->layer_count = layer_count;
	probe->layers = gsn_alloc(layer_count, sizeof *probe->layers);
	if (!probe->layers) {
		gsn_free(probe);
		return NULL;
	}
	return probe;
}

void gpusnap_probe_free(gpusnap_probe *probe)
{
	if (!probe)
		return;
	for (uint32_t i = 0; i < probe->layer_count; i++)
		gsn_free(probe->layers[i].experts);
	gsn_free(probe->layers);
	gsn_free(probe);
}
