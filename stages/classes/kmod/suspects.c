// SPDX-License-Identifier: GPL-2.0
/* See suspects.h. */
#include <linux/net.h>
#include <linux/siphash.h>

#include "classes.h"

#define SUSPECT_FROM 3
#define SUSPECT_MOST 8		/* so that a client whose requests are answered again is soon trusted */

static u64 client_of(const struct flow_key *key)
{
	const __be32 *words = key->client.s6_addr32;

	if (key->family == NFPROTO_IPV4)
		return (__force u32)words[0];
	return (u64)(__force u32)words[0] << 32 | (__force u32)words[1];
}

/* Keyed, so that nobody outside can find addresses that share a set. */
static struct suspect *set_of(const struct classes *classes, u64 client)
{
	siphash_key_t key = { { classes->hash_key[0], classes->hash_key[1] } };
	u64 hash = siphash_1u64(client, &key);

	return ((struct classes *)classes)->suspects.set[hash >> (64 - SUSPECT_SETS_BITS)];
}

/* The client's entry if it has one that counts still, or else that of its set which was heard of the longest ago. */
static struct suspect *look_up(const struct classes *classes, u64 client, u64 now, bool *is_found)
{
	struct suspect *entry = set_of(classes, client), *oldest = entry;
	u32 i;

	for (i = 0; i < SUSPECT_WAYS; i++, entry++) {
		*is_found = entry->last && entry->client == client && (s64)(now - entry->last) < (s64)classes->window;
		if (*is_found)
			return entry;
		if (entry->last < oldest->last)
			oldest = entry;
	}
	return oldest;
}

bool suspects_have(const struct classes *classes, const struct flow_key *key, u64 now)
{
	const struct suspect *entry;
	bool is_found;

	entry = look_up(classes, client_of(key), now, &is_found);
	return is_found && entry->unanswered >= SUSPECT_FROM;
}

/* The log has not more than a few lines a second, whoever forges addresses. */
static void tell(const struct flow_key *key)
{
	if (key->family == NFPROTO_IPV4)
		net_info_ratelimited("tarn_classes: %pI4 leaves requests unanswered, and waits behind others\n", &key->client);
	else
		net_info_ratelimited("tarn_classes: %pI6c leaves requests unanswered, and waits behind others\n",
				     &key->client);
}

void suspects_overdue(struct classes *classes, const struct flow_key *key, u64 now)
{
	u64 client = client_of(key);
	struct suspect *entry;
	bool is_found;

	entry = look_up(classes, client, now, &is_found);
	if (!is_found)
		*entry = (struct suspect){ .client = client };
	entry->last = now;
	entry->unanswered = min_t(u32, entry->unanswered + 1, SUSPECT_MOST);
	classes->suspects.until = now + classes->window;
	if (entry->unanswered == SUSPECT_FROM)
		tell(key);
}

void suspects_answered(struct classes *classes, const struct flow_key *key, u64 now)
{
	struct suspect *entry;
	bool is_found;

	entry = look_up(classes, client_of(key), now, &is_found);
	if (is_found && entry->unanswered)
		entry->unanswered--;
}
