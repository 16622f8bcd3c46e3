/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which class is served next: the one furthest behind its target, by the thesis's measure
 *
 *     Pr(i) = S(i) / (N(i) * P(i))
 *
 * of S requests answered in time out of N that arrived, and the target P: the lowest first. Nothing here depends on the
 * kernel, so that the same code is tested in user space against exact rational numbers.
 *
 * Ratios are compared by cross-multiplication: S(a) * N(b) * P(b) < S(b) * N(a) * P(a). Counts are first brought below
 * 2^SHARE_BITS, both of a class by the same shift, which changes the ratio by less than 2^-(SHARE_BITS - 2); targets are
 * below 2^14. So a product is below 2^(24 + 24 + 14) = 2^62 and cannot overflow.
 */
#ifndef TARN_CLASSES_CHOICE_H
#define TARN_CLASSES_CHOICE_H

#include <linux/types.h>

#define SHARE_BITS 24
#define WHOLE_TARGET 10000	/* all requests in time */

/* The window of shares is counted in so many slots; the oldest is forgotten whole. */
#define WINDOW_SLOTS 16

/* How a class does. */
struct share {
	__u64 requests;		/* N: arrived; at least S */
	__u64 in_time;		/* S: answered within the deadline */
	__u32 target;		/* P, in 1/10000, 1 to WHOLE_TARGET */
};

/*
 * Counts of the last WINDOW_SLOTS slots, and their sums. 32 bits: at ten million requests a second a slot of 225 s, the
 * longest there is. More than that are not counted.
 *
 * An answer in time counts in the slot in which its request arrived, as long as the window has that: so S is of the N
 * requests that are counted, and never more. So does what became of a request: answered, late too, or left unanswered.
 */
struct window {
	__u64 requests, in_time, answered, unanswered;
	__u64 judged_requests, judged_in_time;	/* the same from `since` on */
	/* That of a number: modulo WINDOW_SLOTS. */
	__u32 slot_requests[WINDOW_SLOTS], slot_in_time[WINDOW_SLOTS];
	__u32 slot_answered[WINDOW_SLOTS], slot_unanswered[WINDOW_SLOTS];
	__u32 number;		/* of the present slot; goes round after a month at least, which no request lives to see */
	__u32 since;		/* the first slot that the class is judged by, unless the window has lost it: no later than `number` */
};

/* Whether `a` is further behind its target than `b`. Without a request, a class is as far behind as can be. */
int is_further_behind(struct share a, struct share b);

/*
 * Whether a class has more than it was promised by half of what is missing to all: of a target of 90 %, 95. Without a request it has
 * none. Sums of a window are below 2^40.
 */
int has_surplus(struct share share);

/* Adds an arrival at the present slot. */
void window_count_request(struct window *window);

/* Adds what became of a request that arrived at the slot of this number. */
void window_count_answer(struct window *window, __u32 number, int is_in_time);
void window_count_unanswered(struct window *window, __u32 number);

/* Takes an unanswered one back: its answer has come after all. */
void window_uncount_unanswered(struct window *window, __u32 number);

/*
 * How the class does by those requests that let themselves be answered: N is scaled by their part of all whose fate is known.
 * Otherwise a class of clients that send what nobody can answer would be the furthest behind of all, whatever it is served.
 * One that has only such requests, four at least, is not behind at all.
 */
struct share window_share(const struct window *window, __u32 target);

/*
 * From now on, the class is judged by what arrives in the present slot and later; the sums go on. What has happened while the choice
 * decided nothing, it does not make up for.
 */
void window_judge_anew(struct window *window);

/* Goes on by so many slots. */
void window_advance(struct window *window, __u64 slots);

/* Begins anew: what has arrived before counts no more, and neither do its answers. */
void window_clear(struct window *window);

#if defined(__KERNEL__) && defined(DEBUG)
/* Whether all of this does here what it should; the kernel's log says what does not. */
bool choice_selftest(void);
#endif

#endif
