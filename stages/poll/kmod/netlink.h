/* SPDX-License-Identifier: GPL-2.0 */
/* Commands by generic netlink: see ../uapi.h. */
#ifndef TARN_POLL_NETLINK_H
#define TARN_POLL_NETLINK_H

int netlink_register(void);
void netlink_unregister(void);

#endif
