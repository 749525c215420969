/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_SUITE_H
#define GPUSNAP_TEST_SUITE_H
/* What every Check program of the project shares: one suite, one main, status assertions. */
#include <stdlib.h>

#include <check.h>
#include <gpusnap/status.h>

#ifdef NDEBUG
#undef NDEBUG
#endif
#include <assert.h>

/* The call must answer `expected`; otherwise show what it said. Needs `gpusnap_error err`. */
#define ck_status(call, expected)                                                                  \
	do {                                                                                       \
		gpusnap_status ck_got_ = (call);                                                   \
		ck_assert_msg(ck_got_ == (expected), "%s: %s, expected %s%s%s", #call,             \
			gpusnap_status_name(ck_got_), gpusnap_status_name(expected),               \
			ck_got_ ? ": " : "", ck_got_ ? err.message : "");                          \
	} while (0)
#define ck_ok(call) ck_status(call, GPUSNAP_OK)
/* A failure whose message must contain `text`: an error names the object and the values. */
#define ck_fails(call, expected, text)                                                             \
	do {                                                                                       \
		ck_status(call, expected);                                                         \
		ck_assert_msg(strstr(err.message, (text)) != NULL, "message '%s' lacks '%s'",      \
			err.message, (text));                                                      \
	} while (0)

/* The device that suites of the library run on: "host", or one of a stand-in (tests/fake). */
static inline const char *test_device(void)
{
	const char *name = getenv("GPUSNAP_TEST_DEVICE");

	return name ? name : "host";
}

/* Run one test case of these functions; the value for main() to return. */
static inline int run_suite(const char *name, const TTest *const *tests, size_t count)
{
	Suite *suite = suite_create(name);
	TCase *cases = tcase_create(name);
	SRunner *runner;
	int failed;

	for (size_t i = 0; i < count; i++)
		tcase_add_test(cases, tests[i]);
	tcase_set_timeout(cases, 60);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	/* A suite of which nothing ran, because CK_RUN_CASE names none of it, proves nothing. */
	failed = srunner_ntests_run(runner) == 0 || srunner_ntests_failed(runner) > 0;
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define RUN_SUITE(name, tests) run_suite((name), (tests), sizeof(tests) / sizeof((tests)[0]))

#endif
