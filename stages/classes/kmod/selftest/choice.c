// SPDX-License-Identifier: GPL-2.0
/*
 * Part of choice.c in a kernel that is built with DEBUG: what the unit tests show in user space (tests/choice.rs), shown of
 * the code that the kernel's own compiler made with the kernel's own options.
 */
#include <linux/init.h>
#include <linux/prandom.h>
#include <linux/printk.h>

#define SELFTEST_RANDOM 10000
#define SELFTEST_SEED 1

static const struct {
	struct share a, b;
	int is_further;
} selftest_shares[] __initconst = {
	/* 80 % of a target of 90 % is less of it than 75 % of 80 %. */
	{ { 100, 80, 9000 }, { 100, 75, 8000 }, 1 },
	{ { 100, 75, 8000 }, { 100, 80, 9000 }, 0 },
	/* As far: neither is further. */
	{ { 100, 45, 9000 }, { 100, 40, 8000 }, 0 },
	/* Without a request, a class is as far behind as one without an answer. */
	{ { 0, 0, 5000 }, { 10, 1, 9000 }, 1 },
	{ { 0, 0, 5000 }, { 10, 0, 9000 }, 0 },
	{ { 10, 1, 9000 }, { 0, 0, 5000 }, 0 },
	/* More answers than requests are all of them. */
	{ { 1, 5, 10000 }, { 1, 1, 10000 }, 0 },
	/* The greatest counts, and those where the product is greatest. */
	{ { ~0ULL, ~0ULL - 1, 10000 }, { ~0ULL, ~0ULL, 1 }, 1 },
	{ { ~0ULL, 0, 1 }, { ~0ULL, ~0ULL, 10000 }, 1 },
	{ { (1 << SHARE_BITS) - 1, (1 << SHARE_BITS) - 2, 10000 },
	  { (1 << SHARE_BITS) - 1, (1 << SHARE_BITS) - 1, 10000 }, 1 },
};

static bool __init selftest_known(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(selftest_shares); i++)
		if (is_further_behind(selftest_shares[i].a, selftest_shares[i].b) != selftest_shares[i].is_further)
			return false;
	return true;
}

static struct share __init selftest_share(struct rnd_state *random)
{
	struct share share = {
		.requests = prandom_u32_state(random) % 100000 + 1,
		.target = prandom_u32_state(random) % WHOLE_TARGET + 1,
	};

	share.in_time = prandom_u32_state(random) % (share.requests + 1);
	return share;
}

/* Counts below 100,000 are compared exactly, and products stay below 2^48. */
static bool __init selftest_random(void)
{
	struct rnd_state random;
	unsigned int i;

	prandom_seed_state(&random, SELFTEST_SEED);
	for (i = 0; i < SELFTEST_RANDOM; i++) {
		struct share a = selftest_share(&random), b = selftest_share(&random);
		int is_further = a.in_time * b.requests * b.target < b.in_time * a.requests * a.target;

		if (is_further_behind(a, b) != is_further)
			return false;
	}
	return true;
}

/* One request a slot: the window holds as many as it has slots, and forgets all when it goes on by as many. */
static bool __init selftest_window(void)
{
	struct window window = { 0 };
	unsigned int i;

	for (i = 0; i < 3 * WINDOW_SLOTS; i++) {
		window_advance(&window, 1);
		window_count_request(&window);
		window_count_answer(&window, window.number, true);
	}
	if (window.requests != WINDOW_SLOTS || window.in_time != WINDOW_SLOTS)
		return false;
	window_count_answer(&window, window.number - WINDOW_SLOTS, true);	/* its request is forgotten */
	if (window.in_time != WINDOW_SLOTS)
		return false;
	window.slot_requests[window.number % WINDOW_SLOTS] = ~0U;
	window.requests += ~0U - 1;
	window_count_request(&window);	/* one more than 32 bits hold is not counted */
	if (window.requests != WINDOW_SLOTS - 1 + (__u64)~0U)
		return false;
	window_advance(&window, ~0ULL);
	return !window.requests && !window.in_time;
}

bool __init choice_selftest(void)
{
	static const struct {
		const char *name;
		bool (*test)(void);
	} tests[] __initconst = {
		{ "known shares", selftest_known },
		{ "random shares", selftest_random },
		{ "window", selftest_window },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		if (!tests[i].test()) {
			pr_err("tarn_classes: selftest of the choice: %s: FAIL\n", tests[i].name);
			return false;
		}
	}
	pr_info("tarn_classes: selftest of the choice: pass\n");
	return true;
}
