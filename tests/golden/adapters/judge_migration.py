"""Rollouts and sidecar before and after the migration, run twice."""

from rollmake.core.judge import migrate_invalid_judges


def nothing_delivered(folder):
    return False


def run(given, topology):
    before = given["rollouts"]
    stay, gained = migrate_invalid_judges(before, given["failures"] or [], nothing_delivered)
    failures = [*(given["failures"] or []), *gained] if gained else given["failures"]
    stay_again, gained_again = migrate_invalid_judges(stay, failures or [], nothing_delivered)
    assert (stay_again, gained_again) == (stay, [])
    return {
        "moved": len(before) - len(stay),
        "moved_again": len(stay) - len(stay_again),
        "rollouts": stay_again,
        "failures": failures,
    }
