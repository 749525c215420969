/* SPDX-License-Identifier: Apache-2.0 */
/* From a journal and a choice to the folder that a crash leaves. */
#include "tests/support/crash_states.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum fate { APPLIED, DROPPED, GARBAGE };
enum durability { DURABLE, PENDING, LOST };

static bool is_name_op(const struct crash_op *op)
{
	return op->kind == CRASH_LINK || op->kind == CRASH_RENAME || op->kind == CRASH_UNLINK;
}

static bool is_data_op(const struct crash_op *op)
{
	return op->kind == CRASH_WRITE || op->kind == CRASH_RESIZE;
}

/* The first sync after a step decides about it, also when it fails: no later one makes it good. */
static enum durability durability_of(const struct crash_point *point, unsigned step)
{
	const struct crash_op *op = &point->fs->ops[step];

	for (unsigned i = step + 1; i < point->ops; i++) {
		const struct crash_op *later = &point->fs->ops[i];

		if (is_name_op(op) && later->kind == CRASH_SYNC_FOLDER)
			return DURABLE;
		if (is_data_op(op) && later->inode == op->inode && later->kind == CRASH_SYNC)
			return DURABLE;
		if (is_data_op(op) && later->inode == op->inode && later->kind == CRASH_LOSE)
			return LOST;
	}
	return PENDING;
}

/* ---- choices ---- */

static unsigned outcomes(const struct crash_op *op)
{
	return op->kind == CRASH_RENAME ? 3 : 2;
}

struct crash_point crash_point_at(const struct crash_fs *fs, unsigned ops)
{
	struct crash_point point = {.fs = fs, .ops = ops, .name_choices = 1};

	for (unsigned i = 0; i < ops; i++) {
		const struct crash_op *op = &fs->ops[i];

		if (durability_of(&point, i) != PENDING)
			continue;
		if (is_name_op(op)) {
			point.pending_names++;
			point.name_choices *= outcomes(op);
		} else if (op->kind == CRASH_RESIZE) {
			point.pending_resizes++;
		} else if (op->kind == CRASH_WRITE) {
			point.pending_sectors += gsn_ceil_div(op->bytes, CRASH_SECTOR);
		}
	}
	return point;
}

/* Per choice of names: no fault, all dropped, all garbage, each sector dropped, each garbage. */
static uint64_t data_choices(const struct crash_point *point)
{
	return point->pending_sectors ? 3 + 2 * point->pending_sectors : 1;
}

uint64_t crash_systematic(const struct crash_point *point)
{
	return (point->name_choices * data_choices(point)) << point->pending_resizes;
}

static struct crash_choice random_choice(const struct crash_point *point, uint64_t n)
{
	static const uint64_t units[] = {CRASH_SECTOR, CRASH_SECTOR, 4096, UINT64_MAX};
	static const unsigned shares[] = {30, 80, 160, 512};
	uint64_t random = n * UINT64_C(0x2545f4914f6cdd1d) + point->ops;
	struct crash_choice choice = {
		.unit = units[random_below(&random, 4)],
		.at = UINT64_MAX,
		.per_1024 = shares[random_below(&random, 4)],
	};

	/* Mostly applied: data without a name is not seen, and a file cut off is known by that. */
	if (random_below(&random, 8) == 0)
		choice.names = random_below(&random, point->name_choices);
	if (random_below(&random, 8) == 0)
		choice.resizes = (unsigned)random_below(&random, 1u << point->pending_resizes);
	choice.drops = random_below(&random, 3) != 0;
	choice.fills = !choice.drops || random_below(&random, 2);
	choice.seed = random_u64(&random);
	return choice;
}

struct crash_choice crash_choice_of(const struct crash_point *point, uint64_t n)
{
	struct crash_choice choice = {.unit = CRASH_SECTOR, .at = UINT64_MAX, .seed = n};
	uint64_t data;

	if (n >= crash_systematic(point))
		return random_choice(point, n);
	choice.resizes = (unsigned)(n & ((1u << point->pending_resizes) - 1));
	n >>= point->pending_resizes;
	choice.names = n % point->name_choices;
	data = n / point->name_choices;
	choice.drops = data & 1;
	choice.fills = !choice.drops;
	if (data == 1 || data == 2)
		choice.per_1024 = 1024;
	else if (data > 2)
		choice.at = (data - 3) / 2;
	return choice;
}

/* ---- data ---- */

static void grow(struct crash_file *file, uint64_t length)
{
	if (length > file->room) {
		file->bytes = realloc(file->bytes, (size_t)length);
		assert(file->bytes);
		file->room = length;
	}
	if (length > file->length) {
		memset(file->bytes + file->length, 0, (size_t)(length - file->length));
		file->length = length;
	}
}

static enum fate fate_of(const struct crash_choice *choice, uint64_t sector, uint64_t unit)
{
	uint64_t random = choice->seed ^ (unit * UINT64_C(0x9e3779b97f4a7c15));

	if (choice->at != UINT64_MAX && choice->at != sector)
		return APPLIED;
	if (choice->at == UINT64_MAX && random_below(&random, 1024) >= choice->per_1024)
		return APPLIED;
	if (choice->drops && choice->fills)
		return random_below(&random, 2) ? DROPPED : GARBAGE;
	return choice->drops ? DROPPED : GARBAGE;
}

static void fill_garbage(uint8_t *bytes, uint64_t length, uint64_t random)
{
	for (uint64_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((random += UINT64_C(0x9e3779b97f4a7c15)) >> 53);
}

/* One write by sectors; `*sector` counts those of all pending writes. */
static void write_torn(struct crash_file *file, const struct crash_op *op,
	const struct crash_choice *choice, uint64_t *sector)
{
	uint64_t first = *sector;

	for (uint64_t done = 0; done < op->bytes; done += CRASH_SECTOR, ++*sector) {
		uint64_t length = gsn_min(CRASH_SECTOR, op->bytes - done);
		uint64_t unit = first + done / choice->unit;
		enum fate fate = fate_of(choice, *sector, unit);

		if (fate == DROPPED)
			continue;
		grow(file, op->offset + done + length);
		if (fate == GARBAGE)
			fill_garbage(file->bytes + op->offset + done, length, choice->seed + unit);
		else
			memcpy(file->bytes + op->offset + done, op->data + done, (size_t)length);
	}
}

static void set_length(struct crash_file *file, uint64_t length)
{
	grow(file, length);
	file->length = length;
}

static void apply_data(struct crash_file *file, const struct crash_op *op)
{
	if (op->kind == CRASH_RESIZE) {
		set_length(file, op->bytes);
		return;
	}
	grow(file, op->offset + op->bytes);
	memcpy(file->bytes + op->offset, op->data, (size_t)op->bytes);
}

static void load_before(const struct crash_fs *fs, unsigned inode, struct crash_file *file)
{
	file->length = 0;
	grow(file, fs->durable[inode]);
	assert(pread(fs->inodes[inode], file->bytes, (size_t)file->length, 0) ==
		(ssize_t)file->length);
}

static bool has_name(const struct crash_folder *folder, unsigned inode)
{
	for (unsigned i = 0; i < CRASH_INODES; i++)
		if (folder->names[i].name[0] && folder->names[i].inode == inode)
			return true;
	return false;
}

static void make_files(const struct crash_point *point, const struct crash_choice *choice,
	struct crash_image *image)
{
	uint64_t sector = 0;
	unsigned resize = 0;

	for (unsigned i = 0; i < point->fs->inode_count; i++)
		if (has_name(&image->folder, i))
			load_before(point->fs, i, &image->files[i]);
	for (unsigned i = 0; i < point->ops; i++) {
		const struct crash_op *op = &point->fs->ops[i];
		struct crash_file *file = &image->files[op->inode];
		enum durability durability = durability_of(point, i);

		if (!is_data_op(op) || durability == LOST)
			continue;
		if (durability == DURABLE)
			apply_data(file, op);
		else if (op->kind == CRASH_WRITE)
			write_torn(file, op, choice, &sector);
		else if (!(choice->resizes >> resize++ & 1))
			apply_data(file, op);
	}
}

/* ---- names ---- */

static void apply_name(struct crash_folder *folder, const struct crash_op *op, unsigned outcome)
{
	if (outcome == 1)
		return;
	if (op->kind == CRASH_UNLINK || (op->kind == CRASH_RENAME && outcome == 0))
		crash_unset(folder, op->from);
	if (op->kind != CRASH_UNLINK)
		crash_set(folder, op->to, op->inode);
}

static void make_folder(const struct crash_point *point, const struct crash_choice *choice,
	struct crash_folder *folder)
{
	uint64_t left = choice->names;

	*folder = point->fs->before;
	for (unsigned i = 0; i < point->ops; i++) {
		const struct crash_op *op = &point->fs->ops[i];
		unsigned outcome = 0;

		if (!is_name_op(op))
			continue;
		if (durability_of(point, i) == PENDING) {
			outcome = (unsigned)(left % outcomes(op));
			left /= outcomes(op);
		}
		apply_name(folder, op, outcome);
	}
}

void crash_image_make(const struct crash_point *point, const struct crash_choice *choice,
	struct crash_image *image)
{
	make_folder(point, choice, &image->folder);
	make_files(point, choice, image);
}

void crash_image_free(struct crash_image *image)
{
	for (unsigned i = 0; i < CRASH_INODES; i++)
		free(image->files[i].bytes);
	*image = (struct crash_image){.folder = {{{""}}}};
}
