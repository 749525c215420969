/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's copies and fills. Device memory is looked at when their turn comes. */
#include <string.h>

#include "tests/fake/fake_state.h"

struct rows {
	uint64_t to, from;
	uint64_t to_pitch, from_pitch, width, height;
	gpuMemcpyKind kind;
};

static uint64_t span(uint64_t pitch, const struct rows *rows)
{
	return rows->height ? (rows->height - 1) * pitch + rows->width : 0;
}

static bool is_there(uint64_t address, uint64_t bytes)
{
	bool there = fake_is_device(address, bytes);

	fake.counts.unmapped_touches += !there;
	return there;
}

/* Whether the nearest copies are still to be damaged; a bit of the middle row is. */
static void damage(const struct rows *rows)
{
	uint64_t at = rows->to + rows->height / 2 * rows->to_pitch + rows->width / 2;

	if (fake.knobs.corrupt_in && --fake.knobs.corrupt_in == 0)
		*(unsigned char *)(uintptr_t)at ^= 1;
}

static gpuError_t do_rows(void *args)
{
	const struct rows *rows = args;
	bool good = true;

	fake_lock();
	if ((int)rows->kind != gpuMemcpyDeviceToHost)
		good = is_there(rows->to, span(rows->to_pitch, rows));
	if (good && (int)rows->kind != gpuMemcpyHostToDevice)
		good = is_there(rows->from, span(rows->from_pitch, rows));
	fake_unlock();
	if (!good)
		return (gpuError_t)fakeErrorIllegalAddress;
	for (uint64_t row = 0; row < rows->height; row++)
		memcpy((void *)(uintptr_t)(rows->to + row * rows->to_pitch),
			(const void *)(uintptr_t)(rows->from + row * rows->from_pitch),
			rows->width);
	fake_lock();
	damage(rows);
	fake_unlock();
	return (gpuError_t)gpuSuccess;
}

/* Host memory must be known whole to one allocation or registration. */
static void look_at_host(uint64_t address, uint64_t bytes)
{
	if (!fake_holder(FAKE_HOST, address, bytes) &&
		!fake_holder(FAKE_REGISTRATION, address, bytes))
		fake.counts.loose_copies++;
}

static gpuError_t copy_rows(const struct rows *rows, gpuStream_t stream)
{
	if (rows->to_pitch < rows->width || rows->from_pitch < rows->width)
		return (gpuError_t)gpuErrorInvalidValue;
	if ((int)rows->kind == gpuMemcpyHostToDevice)
		look_at_host(rows->from, span(rows->from_pitch, rows));
	if ((int)rows->kind == gpuMemcpyDeviceToHost)
		look_at_host(rows->to, span(rows->to_pitch, rows));
	return fake_submit(stream, do_rows, rows, sizeof *rows);
}

gpuError_t gpuMemcpyAsync(
	void *to, const void *from, size_t bytes, gpuMemcpyKind kind, gpuStream_t stream)
{
	const struct rows rows = {(uintptr_t)to, (uintptr_t)from, bytes, bytes, bytes, 1, kind};
	gpuError_t code = fake_enter("gpuMemcpyAsync");

	return fake_leave(code ? code : copy_rows(&rows, stream));
}

gpuError_t gpuMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
	size_t width, size_t height, gpuMemcpyKind kind, gpuStream_t stream)
{
	const struct rows rows = {
		(uintptr_t)to, (uintptr_t)from, to_pitch, from_pitch, width, height, kind};
	gpuError_t code = fake_enter("gpuMemcpy2DAsync");

	fake.counts.strided++;
	fake.counts.odd_strided += to_pitch % 4 != 0 || from_pitch % 4 != 0;
	return fake_leave(code ? code : copy_rows(&rows, stream));
}

struct fill {
	uint64_t to, bytes;
	int value;
};

static gpuError_t do_fill(void *args)
{
	const struct fill *fill = args;
	bool good;

	fake_lock();
	good = is_there(fill->to, fill->bytes);
	fake_unlock();
	if (!good)
		return (gpuError_t)fakeErrorIllegalAddress;
	memset((void *)(uintptr_t)fill->to, fill->value, fill->bytes);
	return (gpuError_t)gpuSuccess;
}

gpuError_t gpuMemsetAsync(void *to, int value, size_t bytes, gpuStream_t stream)
{
	const struct fill fill = {(uintptr_t)to, bytes, value};
	gpuError_t code = fake_enter("gpuMemsetAsync");

	return fake_leave(code ? code : fake_submit(stream, do_fill, &fill, sizeof fill));
}
