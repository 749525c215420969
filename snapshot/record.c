/* SPDX-License-Identifier: Apache-2.0 */
/* Records: JSON values under a name that travel in the snapshot's plan. */
#include <gpusnap/json.h>
#include <gpusnap/registry.h>

#include "formats/base/fail.h"
#include "snapshot/registry_state.h"

static gpusnap_status set_record(
	gpusnap_registry *registry, const char *name, gpusnap_json *value, gpusnap_error *err)
{
	gpusnap_status s = gsn_registry_idle(registry, err);

	if (s)
		return s;
	if (!value) {
		if (registry->records)
			gpusnap_json_remove(registry->records, name);
		return GPUSNAP_OK;
	}
	if (!registry->records)
		registry->records = gpusnap_json_pack("{}");
	if (!registry->records ||
		gpusnap_json_set(registry->records, name, gpusnap_json_ref(value)))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for record '%s'", name);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_record_set(
	gpusnap_registry *registry, const char *name, gpusnap_json *value, gpusnap_error *err)
{
	gpusnap_status s = gsn_name_check("record", name, err);

	if (s)
		return s;
	gsn_registry_lock(registry);
	s = set_record(registry, name, value, err);
	gsn_registry_unlock(registry);
	return s;
}

gpusnap_json *gpusnap_record_get(const gpusnap_registry *registry, const char *name)
{
	gpusnap_json *value = NULL;

	gsn_registry_lock(registry);
	if (registry->records)
		value = gpusnap_json_get(registry->records, name);
	if (value)
		value = gpusnap_json_ref(value);
	gsn_registry_unlock(registry);
	return value;
}
