/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device module that does nothing, whole or with one fault: FAKE_KIND, FAKE_ABI, FAKE_SLOTS (how
 * many of the table's slots are set) and FAKE_SYMBOL are set by the build.
 */
#include <string.h>

#include "kernels/device_ops.h"

typedef void (*slot_function)(void);

enum { SLOTS_AT = offsetof(struct gsn_device_ops, count) };

const struct gsn_device_ops *FAKE_SYMBOL(void);

static struct gsn_device_ops table = {.abi = FAKE_ABI, .kind = FAKE_KIND};

static void nothing(void)
{
}

static gpusnap_status count_two(uint32_t *ret_count, gpusnap_error *err)
{
	(void)err;
	*ret_count = 2;
	return GPUSNAP_OK;
}

static gpusnap_status open_index(uint32_t index, void **ret_context, gpusnap_error *err)
{
	(void)index;
	(void)err;
	*ret_context = &table;
	return GPUSNAP_OK;
}

static void close_context(void *context)
{
	(void)context;
}

GPUSNAP_API const struct gsn_device_ops *FAKE_SYMBOL(void)
{
	slot_function function = nothing;
	size_t slots = (sizeof table - SLOTS_AT) / sizeof function;

	for (size_t i = 0; i < slots && i < FAKE_SLOTS; i++)
		memcpy((char *)&table + SLOTS_AT + i * sizeof function, &function, sizeof function);
	table.count = count_two;
	table.open = open_index;
	table.close = close_context;
	return &table;
}
