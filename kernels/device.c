/* SPDX-License-Identifier: Apache-2.0 */
/* Device names, the kinds that exist, and opening and closing a device. */
#include <gpusnap/device.h>

#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/device_module.h"
#include "kernels/device_ops.h"
#include "kernels/host_device.h"

static const char *const kind_names[] = {"host", "cuda", "hip"};

enum { KIND_COUNT = sizeof kind_names / sizeof kind_names[0] };

const char *gsn_device_kind_name(uint32_t index)
{
	return index < KIND_COUNT ? kind_names[index] : NULL;
}

gpusnap_status gsn_device_kind_open(
	const char *kind, const struct gsn_device_ops **ret_ops, gpusnap_error *err)
{
	if (strcmp(kind, gsn_host_ops.kind) != 0)
		return gsn_device_module_open(kind, ret_ops, err);
	*ret_ops = &gsn_host_ops;
	return GPUSNAP_OK;
}

/* Decimal, no sign, no leading zero, at most 4 digits: one spelling for each device. */
static bool parse_index(const char *text, uint32_t *ret_index)
{
	uint32_t value = 0;
	size_t length = strlen(text);

	if (length == 0 || length > 4 || (text[0] == '0' && length > 1))
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*ret_index = value;
	return true;
}

static gpusnap_status parse_name(
	const char *name, const char **ret_kind, uint32_t *ret_index, gpusnap_error *err)
{
	for (uint32_t i = 1; i < KIND_COUNT; i++) {
		size_t length = strlen(kind_names[i]);

		if (strncmp(name, kind_names[i], length) != 0 || name[length] != ':')
			continue;
		if (!parse_index(name + length + 1, ret_index))
			break;
		*ret_kind = kind_names[i];
		return GPUSNAP_OK;
	}
	if (strcmp(name, kind_names[0]) != 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"device name '%.64s': expected 'host', 'cuda:N' or 'hip:N', N in 0..9999",
			name);
	*ret_kind = kind_names[0];
	*ret_index = 0;
	return GPUSNAP_OK;
}

/* The kind's table, once it is known to have a device of that index. */
static gpusnap_status find_device(
	const char *kind, uint32_t index, const struct gsn_device_ops **ret_ops, gpusnap_error *err)
{
	const struct gsn_device_ops *ops;
	uint32_t count;
	gpusnap_status status = gsn_device_kind_open(kind, &ops, err);

	if (status)
		return status;
	status = ops->count(&count, err);
	if (status)
		return status;
	if (index >= count)
		return gsn_fail(err, GPUSNAP_E_NODEV, "this machine has %u '%s' device%s", count,
			kind, count == 1 ? "" : "s");
	*ret_ops = ops;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_device_open(const char *name, gpusnap_device **out, gpusnap_error *err)
{
	const struct gsn_device_ops *ops;
	gpusnap_device *device;
	const char *kind;
	uint32_t index;
	gpusnap_status status;

	if (!name || !out)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "device open: %s is NULL", name ? "out" : "name");
	status = parse_name(name, &kind, &index, err);
	if (status)
		return status;
	status = find_device(kind, index, &ops, err);
	if (status) {
		gsn_error_prefix(err, "device '%s'", name);
		return status;
	}
	device = gsn_alloc(1, sizeof *device);
	if (!device)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "device '%s': no memory", name);
	device->ops = ops;
	device->index = index;
	(void)snprintf(device->name, sizeof device->name, "%s", name);
	status = ops->open(index, &device->context, err);
	if (status) {
		gsn_free(device);
		return status;
	}
	*out = device;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_device_query(
	gpusnap_device *device, gpusnap_device_properties *ret_properties, gpusnap_error *err)
{
	gpusnap_device_properties properties = {0};
	gpusnap_status status;

	if (!device || !ret_properties)
		return gsn_fail(err, GPUSNAP_E_INVALID, "device query: %s is NULL",
			device ? "ret_properties" : "device");
	status = device->ops->query(device->context, &properties, err);
	if (status)
		return status;
	memcpy(properties.name, device->name, sizeof properties.name);
	*ret_properties = properties;
	return GPUSNAP_OK;
}

void gpusnap_device_close(gpusnap_device *device)
{
	if (!device)
		return;
	device->ops->close(device->context);
	gsn_free(device);
}
