/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: what is written is read back, and no plan that contradicts itself or its file is. */
#include <stdio.h>
#include <string.h>

#include <gpusnap/plan.h>

#include "formats/base/alloc.h"
#include "tests/support/gsnap_make.h"
#include "tests/support/suite.h"

static const gpusnap_mask_type mask_type = {
	.kind = GPUSNAP_MASK_MORI, .experts = 8, .local = 4, .first = 4, .rank = 1, .world = 2};

static gpusnap_error err;

/*
 * weights (id 1, 4096 bytes): router F32 [4,8] at 0, mask I32 [8] at 256, w BF16 [3,5] at 1024, an
 * empty buffer; the rest unclaimed and kept. kv (id 7): one buffer, discarded. Two views.
 */
static gpusnap_plan *sample(void)
{
	const uint64_t router[] = {4, 8}, w[] = {3, 5}, empty[] = {0, 4}, kv[] = {2, 128};
	const uint64_t row[] = {8}, columns[] = {5, 3};
	gpusnap_plan *plan = make_plan();
	gpusnap_plan_region *region;
	gpusnap_plan_view *view;

	plan->ep_rank = 1;
	plan->ep_size = 2;
	make_region(plan, 1, "weights", 4096);
	region = make_region(plan, 7, "kv_cache", 8192);
	region->policy = region->unclaimed = GPUSNAP_POLICY_DISCARD;
	region->managed = false;
	make_buffer(plan, "router", GPUSNAP_F32, 1, 0, 2, router)->role = GPUSNAP_ROLE_ROUTER;
	make_mask(plan, "mask", 1, 256, &mask_type);
	make_buffer(plan, "w", GPUSNAP_BF16, 1, 1024, 2, w);
	make_buffer(plan, "empty", GPUSNAP_F16, 1, 4096, 2, empty);
	make_buffer(plan, "kv", GPUSNAP_F8_E4M3, 7, 64, 2, kv)->kept = false;
	plan->buffers[4].role = GPUSNAP_ROLE_KV;
	make_view(plan, "router.row1", "router", GPUSNAP_F32, 32, 1, row);
	view = make_view(plan, "w.transposed", "w", GPUSNAP_BF16, 0, 2, columns);
	view->strides[0] = 1;
	view->strides[1] = 5;
	plan->records = gpusnap_json_pack("{s:{s:i}}", "note", "x", 5);
	return plan;
}

/* Decode the plan with the header that stands in the file. */
static gpusnap_status decode_file(const struct gsnap_file *file, gpusnap_plan **out)
{
	gpusnap_header *header;
	uint64_t json_bytes;
	const char *text;
	gpusnap_status status;

	ck_ok(gpusnap_header_measure(file->bytes, 16, file->length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse(
		(const char *)file->bytes + 8, json_bytes, file->length, &header, &err));
	text = gpusnap_header_metadata(header, GPUSNAP_PLAN_KEY);
	status = gpusnap_plan_decode(text, strlen(text), header, out, &err);
	gpusnap_header_free(header);
	return status;
}

/* The file of `kept` must be refused when its plan is `told`. Frees both. */
static void refused_plan(
	gpusnap_plan *kept, gpusnap_plan *told, gpusnap_status expected, const char *message)
{
	char *text = gpusnap_plan_encode(told);
	struct gsnap_file file = make_file(kept, text);
	gpusnap_plan *plan = NULL;

	ck_fails(decode_file(&file, &plan), expected, message);
	ck_assert(plan == NULL);
	ck_assert_ptr_eq(strstr(err.message, "snapshot plan: "), err.message);
	gpusnap_text_free(text);
	free_file(&file);
	gpusnap_plan_free(kept);
	gpusnap_plan_free(told);
}

/* The sample's file must be refused when `from` in its plan's text reads `to`. */
static void refused(const char *from, const char *to, gpusnap_status expected, const char *message)
{
	gpusnap_plan *kept = sample(), *plan = NULL;
	char *text = gpusnap_plan_encode(kept), *changed, *at = strstr(text, from);
	struct gsnap_file file;

	ck_assert_msg(at != NULL, "'%s' is not in %s", from, text);
	changed = gsn_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	file = make_file(kept, changed);
	ck_fails(decode_file(&file, &plan), expected, message);
	ck_assert(plan == NULL);
	gsn_free(changed);
	gpusnap_text_free(text);
	free_file(&file);
	gpusnap_plan_free(kept);
}

START_TEST(decode_returns_what_was_encoded)
{
	gpusnap_plan *plan = sample(), *back;
	struct gsnap_file file = make_file(plan, NULL);
	char *first, *second;

	ck_ok(decode_file(&file, &back));
	ck_assert_str_eq(back->writer, "gsnap_make 1");
	ck_assert_mem_eq(back->uuid, plan->uuid, 16);
	ck_assert_uint_eq(back->tp_size, 1);
	ck_assert_uint_eq(back->ep_rank, 1);
	ck_assert_uint_eq(back->ep_size, 2);
	ck_assert_uint_eq(back->region_count, 2);
	ck_assert_uint_eq(back->regions[1].id, 7);
	ck_assert_str_eq(back->regions[1].tag, "kv_cache");
	ck_assert_int_eq((int)back->regions[1].policy, GPUSNAP_POLICY_DISCARD);
	ck_assert(back->regions[0].managed && !back->regions[1].managed);
	ck_assert_uint_eq(back->regions[0].bytes, 4096);
	ck_assert_uint_eq(back->regions[0].address, UINT64_C(0x7f0100000000));
	ck_assert_uint_eq(back->buffer_count, 5);
	ck_assert_str_eq(back->buffers[1].name, "mask");
	ck_assert_int_eq((int)back->buffers[1].role, GPUSNAP_ROLE_EXPERT_MASK);
	ck_assert_mem_eq(&back->buffers[1].mask, &mask_type, sizeof mask_type);
	ck_assert_uint_eq(back->buffers[2].bytes, 30);
	ck_assert_uint_eq(back->buffers[2].shape[1], 5);
	ck_assert(back->buffers[0].kept && !back->buffers[4].kept);
	ck_assert_uint_eq(back->view_count, 2);
	ck_assert_int_eq(back->views[1].strides[1], 5);
	ck_assert_uint_eq(back->views[0].offset, 32);
	first = gpusnap_plan_encode(plan);
	second = gpusnap_plan_encode(back);
	ck_assert_str_eq(first, second);
	gpusnap_text_free(first);
	gpusnap_text_free(second);
	gpusnap_plan_free(plan);
	gpusnap_plan_free(back);
	free_file(&file);
}
END_TEST

START_TEST(the_empty_plan_is_a_plan)
{
	gpusnap_plan *plan = make_plan(), *back;
	struct gsnap_file file = make_file(plan, NULL);

	ck_ok(decode_file(&file, &back));
	ck_assert_uint_eq(back->region_count + back->buffer_count + back->view_count, 0);
	ck_ok(read_gsnap(file.bytes, file.length, NULL, NULL, &err));
	gpusnap_plan_free(plan);
	gpusnap_plan_free(back);
	gpusnap_plan_free(NULL);
	free_file(&file);
}
END_TEST

START_TEST(addresses_use_all_64_bits)
{
	gpusnap_plan *plan = sample(), *back;
	struct gsnap_file file;

	plan->regions[0].address = UINT64_MAX;
	file = make_file(plan, NULL);
	ck_ok(decode_file(&file, &back));
	ck_assert_uint_eq(back->regions[0].address, UINT64_MAX);
	gpusnap_plan_free(plan);
	gpusnap_plan_free(back);
	free_file(&file);
	refused("0x7f0100000000", "0x", GPUSNAP_E_FORMAT, "'address' is '0x'");
	refused("0x7f0100000000", "0x10000000000000000", GPUSNAP_E_FORMAT, "1 to 16");
	refused("0x7f0100000000", "7f01", GPUSNAP_E_FORMAT, "'address' is '7f01'");
	refused("0x7f0100000000", "0xFF", GPUSNAP_E_FORMAT, "lower-case");
}
END_TEST

START_TEST(unknown_members_are_ignored_and_unknown_words_refused)
{
	gpusnap_plan *plan = sample(), *back;
	char *text = gpusnap_plan_encode(plan), *more = gsn_printf("{\"x\":[1],%s", text + 1);
	struct gsnap_file file = make_file(plan, more);

	ck_ok(decode_file(&file, &back));
	gpusnap_plan_free(back);
	gpusnap_plan_free(plan);
	gpusnap_text_free(text);
	gsn_free(more);
	free_file(&file);
	refused("\"keep\"", "\"archive\"", GPUSNAP_E_FORMAT,
		"region at position 0: policy 'archive' is unknown");
	refused("\"router\",\"dtype\"", "\"rooter\",\"dtype\"", GPUSNAP_E_FORMAT,
		"buffer 'router': role 'rooter' is unknown");
	refused("\"F32\"", "\"F33\"", GPUSNAP_E_FORMAT, "F33");
	refused("\"mori\"", "\"moro\"", GPUSNAP_E_FORMAT, "buffer 'mask': mask kind 'moro'");
	refused("\"format\":1", "\"format\":2", GPUSNAP_E_UNSUPPORTED,
		"format 2, this build reads 1");
}
END_TEST

START_TEST(missing_and_mistyped_members_are_named)
{
	refused("\"writer\":\"gsnap_make 1\",", "", GPUSNAP_E_FORMAT, "'writer' is missing");
	refused("\"gsnap_make 1\"", "\"\"", GPUSNAP_E_FORMAT, "'writer' is empty");
	refused("00112233-", "0011223-", GPUSNAP_E_FORMAT, "is no UUID");
	refused("\"ep\":[1,2]", "\"ep\":[2,2]", GPUSNAP_E_FORMAT, "'ep', which is [rank, size]");
	refused("\"bytes\":4096", "\"bytes\":0", GPUSNAP_E_FORMAT, "'bytes' is 0");
	refused("\"managed\":true", "\"managed\":1", GPUSNAP_E_FORMAT, "'managed' is an integer");
	refused("\"shape\":[4,8]", "\"shape\":[4,-8]", GPUSNAP_E_FORMAT,
		"buffer 'router': 'shape': item 1 is -8");
	refused("\"shape\":[4,8]", "\"shape\":[4,8.0]", GPUSNAP_E_FORMAT, "item 1 is a real");
	refused("\"name\":\"router\",", "", GPUSNAP_E_FORMAT, "buffer at position 0: 'name'");
	refused("\"name\":\"router.row1\",", "", GPUSNAP_E_FORMAT, "view at position 0: 'name'");
	refused("\"strides\":[1]", "\"strides\":[]", GPUSNAP_E_FORMAT,
		"view 'router.row1': 0 strides for a shape of rank 1");
	refused("\"records\":{\"note\":{\"x\":5}}", "\"records\":[]", GPUSNAP_E_FORMAT,
		"'records' is an array");
	refused("\"tp\"", "\"uuid\"", GPUSNAP_E_FORMAT, "snapshot plan");
	refused("\"kept\":false", "\"kept\":0", GPUSNAP_E_FORMAT, "'kept' is an integer");
}
END_TEST

START_TEST(masks_fit_their_type)
{
	refused("\"mask\":{\"kind\"", "\"masc\":{\"kind\"", GPUSNAP_E_FORMAT,
		"buffer 'mask': 'mask' is missing");
	refused("\"role\":\"expert_mask\"", "\"role\":\"expert_map\"", GPUSNAP_E_FORMAT,
		"'mask' is given, but the role is expert_map");
	refused("\"experts\":8", "\"experts\":9", GPUSNAP_E_FORMAT, "expected I32 [9]");
	refused("\"local\":4", "\"local\":5", GPUSNAP_E_FORMAT, "'first' is 4, expected 0 to 3");
	refused("\"I32\",\"shape\":[8]", "\"I32\",\"shape\":[8,1]", GPUSNAP_E_FORMAT,
		"I32 of rank 2");
	refused("\"I32\"", "\"F32\"", GPUSNAP_E_FORMAT, "buffer 'mask': F32 of rank 1");
}
END_TEST

START_TEST(regions_and_names_are_unique)
{
	gpusnap_plan *told = sample();

	told->regions[1].id = 1;
	refused_plan(sample(), told, GPUSNAP_E_FORMAT, "two regions have id 1");
	refused("\"w.transposed\"", "\"w\"", GPUSNAP_E_FORMAT, "are named 'w'");
	refused("\"w.transposed\"", "\"router.row1\"", GPUSNAP_E_FORMAT, "named 'router.row1'");
	refused("\"w.transposed\"", "\"gpusnap.x\"", GPUSNAP_E_FORMAT,
		"names that begin with 'gpusnap.' are reserved");
	refused("\"name\":\"mask\"", "\"name\":\"w\"", GPUSNAP_E_FORMAT, "are named 'w'");
}
END_TEST

START_TEST(buffers_stay_in_their_regions_and_apart)
{
	refused("\"offset\":64", "\"offset\":7937", GPUSNAP_E_FORMAT,
		"buffer 'kv': 256 bytes at 7937 leave region 7 of 8192 bytes");
	refused("\"offset\":64", "\"offset\":9223372036854775807", GPUSNAP_E_FORMAT,
		"leave region 7");
	refused("\"region\":7", "\"region\":8", GPUSNAP_E_FORMAT,
		"lies in region 8, which the plan lacks");
	refused("\"offset\":256", "\"offset\":127", GPUSNAP_E_FORMAT,
		"'router' and 'mask' overlap in region 1: [127, 159) begins before 128");
	/* Over bytes that the file holds raw. */
	refused("\"offset\":1024", "\"offset\":1010", GPUSNAP_E_FORMAT, "overlap in region 1");
	refused("\"offset\":4096", "\"offset\":4097", GPUSNAP_E_FORMAT,
		"buffer 'empty': 0 bytes at 4097 leave region 1");
}
END_TEST

START_TEST(views_stay_in_their_buffers)
{
	refused("\"buffer\":\"router\"", "\"buffer\":\"rooter\"", GPUSNAP_E_FORMAT,
		"view 'router.row1' is of buffer 'rooter', which the plan lacks");
	refused("\"buffer\":\"router\"", "\"buffer\":\"w.transposed\"", GPUSNAP_E_FORMAT,
		"is of buffer 'w.transposed'");
	refused("\"offset\":32", "\"offset\":97", GPUSNAP_E_FORMAT,
		"view 'router.row1' at offset 97 leaves buffer 'router' of 128 bytes");
	refused("\"strides\":[1]", "\"strides\":[-2]", GPUSNAP_E_FORMAT, "leaves buffer 'router'");
	refused("\"strides\":[1]", "\"strides\":[-9223372036854775808]", GPUSNAP_E_FORMAT,
		"leaves buffer 'router'");
	refused("\"strides\":[1,5]", "\"strides\":[1,6]", GPUSNAP_E_FORMAT, "leaves buffer 'w'");
	refused("\"strides\":[1]", "\"strides\":[4]", GPUSNAP_E_FORMAT, "leaves buffer 'router'");
}
END_TEST

START_TEST(views_may_run_backwards_and_share_elements)
{
	const uint64_t row[] = {8}, many[] = {1000, 8}, none[] = {0, 1000};
	gpusnap_plan *plan = sample(), *back;
	struct gsnap_file file;

	make_view(plan, "backwards", "router", GPUSNAP_F32, 28, 1, row)->strides[0] = -1;
	make_view(plan, "expanded", "router", GPUSNAP_F32, 96, 2, many)->strides[0] = 0;
	make_view(plan, "nothing", "router", GPUSNAP_F32, 128, 2, none)->strides[1] = INT64_MAX;
	make_view(plan, "nibbles", "router", GPUSNAP_F4, 124, 1, row);
	file = make_file(plan, NULL);
	ck_ok(decode_file(&file, &back));
	ck_assert_int_eq(back->views[2].strides[0], -1);
	gpusnap_plan_free(plan);
	gpusnap_plan_free(back);
	free_file(&file);
}
END_TEST

START_TEST(kept_buffers_are_tensors_of_the_same_form)
{
	refused("\"BF16\",\"shape\":[3,5]", "\"F16\",\"shape\":[3,5]", GPUSNAP_E_FORMAT,
		"buffer 'w': dtype is F16, its tensor's is BF16");
	refused("\"BF16\",\"shape\":[3,5]", "\"BF16\",\"shape\":[5,3]", GPUSNAP_E_FORMAT,
		"buffer 'w': dimension 0 is 5, its tensor's is 3");
	refused("\"BF16\",\"shape\":[3,5]", "\"BF16\",\"shape\":[15]", GPUSNAP_E_FORMAT,
		"buffer 'w': rank is 1, its tensor's is 2");
	refused("\"name\":\"w\"", "\"name\":\"v\"", GPUSNAP_E_FORMAT,
		"buffer 'v': is kept, but the file has no tensor of that name");
	refused("\"kept\":false", "\"kept\":true", GPUSNAP_E_FORMAT,
		"buffer 'kv': is kept, but the policy of region 7 is discard");
}
END_TEST

START_TEST(tensors_are_all_accounted_for)
{
	const uint64_t shape[] = {16};
	gpusnap_plan *kept = sample(), *told = sample();

	make_buffer(kept, "stranger", GPUSNAP_U8, 1, 2048, 1, shape);
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "tensor 'stranger': is no buffer of the plan");

	kept = sample();
	told = sample();
	kept->buffers[4].kept = true;
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "plan says that buffer is not kept");

	kept = sample();
	told = sample();
	make_region(kept, 9, "more", 64);
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "'gpusnap.raw/9/0': is of region 9");

	kept = sample();
	told = sample();
	told->regions[0].unclaimed = GPUSNAP_POLICY_ZERO;
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "region 1 are not kept, their policy is zero");

	kept = sample();
	told = sample();
	kept->regions[0].bytes += 4096;
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "leave region 1 of 4096 bytes");
}
END_TEST

START_TEST(reserved_names_that_are_not_defined_are_refused)
{
	static const char *const names[] = {"gpusnap.raw/1/", "gpusnap.raw/01/0", "gpusnap.new",
		"gpusnap.raw/1/0/0", "gpusnap.raw/4294967296/0", "gpusnap."};
	const uint64_t shape[] = {16};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		gpusnap_plan *kept = sample();

		make_buffer(kept, names[i], GPUSNAP_U8, 1, 2048, 1, shape);
		refused_plan(kept, sample(), GPUSNAP_E_FORMAT,
			"is a reserved name that version 1 does not define");
	}
}
END_TEST

/* The bytes that nobody named are the ones that engines lost. */
START_TEST(a_file_that_lacks_kept_bytes_is_refused)
{
	gpusnap_plan *kept = sample(), *told = sample();

	kept->regions[0].unclaimed = GPUSNAP_POLICY_ZERO; /* written without raw ranges */
	refused_plan(kept, told, GPUSNAP_E_FORMAT,
		"region 1 ('weights') keeps unclaimed bytes, but the file lacks its bytes [128, "
		"256)");

	kept = sample();
	told = sample();
	told->regions[0].bytes += 1;
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "lacks its bytes [4096, 4097)");

	kept = make_plan();
	told = make_plan();
	make_region(kept, 1, "a", 64)->unclaimed = GPUSNAP_POLICY_DISCARD;
	make_region(told, 1, "a", 64);
	refused_plan(kept, told, GPUSNAP_E_FORMAT, "lacks its bytes [0, 64)");
}
END_TEST

/* Change the header itself, at the expense of the spaces that pad it. */
static void edit_header(struct gsnap_file *file, const char *from, const char *to)
{
	size_t old = strlen(from), new = strlen(to), rest;
	uint8_t *at = memmem(file->bytes, file->header_bytes, from, old);

	ck_assert_msg(at != NULL, "'%s' is not in the header", from);
	rest = file->header_bytes - (size_t)(at - file->bytes) - 8;
	memmove(at + new, at + old, rest - old);
	for (size_t i = 0; i < new; i++)
		at[i] = (uint8_t)to[i];
}

static void refused_header(const char *from, const char *to, const char *message)
{
	gpusnap_plan *plan = sample(), *back = NULL;
	struct gsnap_file file = make_file(plan, NULL);

	edit_header(&file, from, to);
	ck_fails(decode_file(&file, &back), GPUSNAP_E_FORMAT, message);
	gpusnap_plan_free(plan);
	free_file(&file);
}

START_TEST(the_file_ends_with_leaves_and_seal)
{
	refused_header("\"gpusnap.leaves\"", "\"gpusnap.leaved\"", "tensor 'gpusnap.leaved'");
	refused_header("\"gpusnap.seal\"", "\"gpusnap_seal\"", "tensor 'gpusnap_seal'");
	refused_header("\"U8\",\"shape\":[4096]", "\"I8\",\"shape\":[4096]",
		"'gpusnap.seal' is I8 of rank 1, expected U8 [4096]");
	refused_header("\"U8\",\"shape\":[4096]", "\"U8\",\"shape\":[64,64]",
		"'gpusnap.seal' is U8 of rank 2");
	refused_header("[6,16]", "[16,6]", "'gpusnap.leaves' is U8 of rank 2, expected U8 [n, 16]");
	refused_header("[6,16]", "[96]", "'gpusnap.leaves' is U8 of rank 1");
}
END_TEST

START_TEST(nothing_lies_behind_the_leaves)
{
	const uint64_t shape[] = {64};
	gpusnap_plan *plan = make_plan(), *back = NULL;
	struct gsnap_file file;

	make_region(plan, 1, "a", 64);
	make_buffer(plan, "b", GPUSNAP_U8, 1, 0, 1, shape);
	file = make_file(plan, NULL);
	/* b [0, 64), leaves [64, 80), seal [80, 4176) become leaves, b, seal. */
	edit_header(&file, "[0,64]", "[16,80]");
	edit_header(&file, "[64,80]", "[0,16]");
	ck_fails(decode_file(&file, &back), GPUSNAP_E_FORMAT, "are not the last tensors");
	free_file(&file);
	/* And leaves, seal, b. */
	file = make_file(plan, NULL);
	edit_header(&file, "[0,64]", "[4112,4176]");
	edit_header(&file, "[64,80]", "[0,16]");
	edit_header(&file, "[80,4176]", "[16,4112]");
	ck_fails(decode_file(&file, &back), GPUSNAP_E_FORMAT, "are not the last tensors");
	free_file(&file);
	gpusnap_plan_free(plan);
}
END_TEST

START_TEST(empty_tensors_do_not_hide_behind_the_leaves)
{
	gpusnap_plan *plan = sample(), *back = NULL;
	struct gsnap_file file = make_file(plan, NULL);
	char from[64], to[64];
	size_t data = file.leaves_at - file.header_bytes, seal = file.seal_at - file.header_bytes;

	(void)snprintf(from, sizeof from, "[%zu,%zu]", data, data);
	(void)snprintf(to, sizeof to, "[%zu,%zu]", seal, seal);
	edit_header(&file, from, to);
	ck_fails(decode_file(&file, &back), GPUSNAP_E_FORMAT, "a tensor lies behind the leaves");
	free_file(&file);
	gpusnap_plan_free(plan);
}
END_TEST

START_TEST(the_leaf_table_has_one_digest_for_each_leaf)
{
	const uint64_t shape[] = {65537};
	gpusnap_plan *plan = make_plan(), *back = NULL;
	struct gsnap_file file;

	make_region(plan, 1, "a", 65537);
	make_buffer(plan, "b", GPUSNAP_U8, 1, 0, 1, shape);
	file = make_file(plan, NULL);
	ck_assert_uint_eq(file.seal_at - file.leaves_at, 32);
	ck_ok(read_gsnap(file.bytes, file.length, NULL, NULL, &err));
	edit_header(&file, "[2,16]", "[3,16]");
	edit_header(&file, "[65537,65569]", "[65537,65585]");
	edit_header(&file, "[65569,69665]", "[65585,69681]");
	file.length += 16; /* only the header is read below */
	ck_fails(decode_file(&file, &back), GPUSNAP_E_FORMAT,
		"'gpusnap.leaves' holds 3 digests, the data has 2 leaves");
	gpusnap_plan_free(plan);
	free_file(&file);
}
END_TEST

START_TEST(data_begins_on_a_page)
{
	gpusnap_plan *plan = make_plan(), *back = NULL;
	struct gsnap_file file = make_file(plan, NULL);
	gpusnap_header *header;
	char *text = gpusnap_plan_encode(plan);

	/* The same header with one space less. */
	ck_ok(gpusnap_header_parse((const char *)file.bytes + 8, file.header_bytes - 9,
		file.length - 1, &header, &err));
	ck_fails(gpusnap_plan_decode(text, strlen(text), header, &back, &err), GPUSNAP_E_FORMAT,
		"data begins at 4095, expected a multiple of 4096");
	gpusnap_header_free(header);
	gpusnap_text_free(text);
	gpusnap_plan_free(plan);
	free_file(&file);
}
END_TEST

START_TEST(the_seal_must_be_of_this_plan)
{
	gpusnap_plan *plan = sample();
	struct gsnap_file file = make_file(plan, NULL);
	gpusnap_header *header;
	gpusnap_seal good, seal;
	uint64_t json_bytes;

	ck_ok(read_gsnap(file.bytes, file.length, &good, NULL, &err));
	ck_ok(gpusnap_header_measure(file.bytes, 16, file.length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse(
		(const char *)file.bytes + 8, json_bytes, file.length, &header, &err));
	ck_ok(gpusnap_plan_match_seal(plan, header, &good, &err));
	seal = good;
	seal.uuid[0] = 1;
	ck_fails(gpusnap_plan_match_seal(plan, header, &seal, &err), GPUSNAP_E_FORMAT,
		"the seal of 01112233-");
	seal = good;
	seal.header_bytes += 4096;
	ck_fails(gpusnap_plan_match_seal(plan, header, &seal, &err), GPUSNAP_E_FORMAT,
		"data begins at");
	seal = good;
	seal.leaf_count++;
	ck_fails(gpusnap_plan_match_seal(plan, header, &seal, &err), GPUSNAP_E_FORMAT,
		"the leaf table holds");
	seal = good;
	seal.file_bytes++;
	ck_fails(gpusnap_plan_match_seal(plan, header, &seal, &err), GPUSNAP_E_FORMAT,
		"tensors end at");
	gpusnap_header_free(header);
	gpusnap_plan_free(plan);
	free_file(&file);
}
END_TEST

START_TEST(limits_are_limits)
{
	char *name = gsn_alloc(GPUSNAP_NAME_MAX + 2, 1);
	gpusnap_plan *told = sample();

	memset(name, 'n', GPUSNAP_NAME_MAX + 1);
	gsn_free(told->views[1].name);
	told->views[1].name = name;
	refused_plan(sample(), told, GPUSNAP_E_LIMIT, "'name' has 4097 bytes, at most 4096");
}
END_TEST

START_TEST(numbers_beyond_json_are_not_written)
{
	gpusnap_plan *plan = sample();

	plan->regions[0].bytes = UINT64_MAX;
	ck_assert_ptr_null(gpusnap_plan_encode(plan));
	gpusnap_plan_free(plan);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		decode_returns_what_was_encoded,
		the_empty_plan_is_a_plan,
		addresses_use_all_64_bits,
		unknown_members_are_ignored_and_unknown_words_refused,
		missing_and_mistyped_members_are_named,
		masks_fit_their_type,
		regions_and_names_are_unique,
		buffers_stay_in_their_regions_and_apart,
		views_stay_in_their_buffers,
		views_may_run_backwards_and_share_elements,
		kept_buffers_are_tensors_of_the_same_form,
		tensors_are_all_accounted_for,
		reserved_names_that_are_not_defined_are_refused,
		a_file_that_lacks_kept_bytes_is_refused,
		the_file_ends_with_leaves_and_seal,
		nothing_lies_behind_the_leaves,
		empty_tensors_do_not_hide_behind_the_leaves,
		the_leaf_table_has_one_digest_for_each_leaf,
		data_begins_on_a_page,
		the_seal_must_be_of_this_plan,
		limits_are_limits,
		numbers_beyond_json_are_not_written,
	};

	return RUN_SUITE("plan", tests);
}
