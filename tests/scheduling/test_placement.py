from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from isthmus._kit.reasons import read_reasons
from isthmus.resources.jobs import JobSpec
from isthmus.resources.tenants import Quota, TenantSpec
from isthmus.scheduling.demands import Demand, Room, demand_of
from isthmus.scheduling.ledger import Ledger, Occupying, Waiting
from isthmus.scheduling.placement import SiteView, plan


def site(name: str = "a", cpus: float = 2, memory: int = 1000, queues: bool = False, **devices: int) -> SiteView:
    room = Room(int(cpus * 1000), memory, tuple(sorted(devices.items())))
    return SiteView(name, {"name": name, "location": "IT"}, room, queues=queues)


def demand(
    cpus: float = 1, memory: int = 0, tenant: str = "t", expression: str | None = None, **devices: int
) -> Demand:
    return Demand(tenant, Room(int(cpus * 1000), memory, tuple(sorted(devices.items()))), expression=expression)


def ledger(*entries: Waiting | Occupying) -> Ledger:
    made = Ledger()
    for entry in entries:
        made.put(entry)
    return made


def test_jobs_go_in_order_of_priority_and_then_of_birth() -> None:
    waiting = ledger(*(Waiting(uid, demand(), priority) for uid, priority in [("1", 0), ("2", 5), ("3", 0), ("4", 5)]))
    assert [a.uid for a in plan(waiting, [site(cpus=3)], {}).assignments] == ["2", "4", "1"]


def test_room_that_is_taken_is_not_given_again() -> None:
    book = ledger(Occupying("0", demand(1), "a"), Waiting("1", demand(1)), Waiting("2", demand(1)))
    made = plan(book, [site(cpus=2)], {})
    assert [a.uid for a in made.assignments] == ["1"]
    assert made.verdicts[demand(1)].reason == "InsufficientRoom"


def test_a_large_job_is_not_passed_for_ever_by_small_ones() -> None:
    book = ledger(Occupying("0", demand(1), "a"), Waiting("1", demand(2)), Waiting("2", demand(1)))
    assert plan(book, [site(cpus=2)], {}).assignments == []


def test_a_job_that_waits_for_a_board_leaves_the_cpus_to_others() -> None:
    book = ledger(
        Occupying("0", demand(1, akida=1), "a"),
        Waiting("1", demand(1, akida=1)),
        Waiting("2", demand(1)),
        Waiting("3", demand(1, akida=1)),
    )
    assert [a.uid for a in plan(book, [site(cpus=4, akida=1)], {}).assignments] == ["2"]


def test_when_no_site_fits_each_site_says_which_condition_failed() -> None:
    big = demand(8, expression="location == IT")
    sites = [
        site("small", cpus=2),
        SiteView("far", {"location": "DE"}, Room(64000, 10**9)),
        SiteView("off", {}, Room(), closed="it is disabled"),
    ]
    verdict = plan(ledger(Waiting("1", big)), sites, {}).verdicts[big]
    assert verdict.reason == "NoSiteFits"
    assert "small: it has 2 CPUs, the job asks for 8" in verdict.message
    assert "far: its location is DE, wanted location == IT" in verdict.message
    assert "off: it is disabled" in verdict.message


def test_a_site_that_does_not_exist_is_the_reason_and_no_other_site_is() -> None:
    lost = replace(demand(), sites=("locl",))
    assert plan(ledger(Waiting("1", lost)), [site("local"), site("edge")], {}).verdicts[lost].message == (
        "no site can run this job: there is no site locl"
    )


def test_without_sites_it_says_so() -> None:
    assert plan(ledger(Waiting("1", demand())), [], {}).verdicts[demand()].reason == "NoSites"


def test_tenants_keep_to_their_sites_devices_and_quotas() -> None:
    sites = [site("a", cpus=8, gpu=1), site("b", cpus=8)]
    one = ledger(Waiting("1", demand()))
    assert [a.site for a in plan(one, sites, {"t": TenantSpec(sites=["b"])}).assignments] == ["b"]
    gpu = demand(1, gpu=1)
    barred = plan(ledger(Waiting("1", gpu)), sites, {"t": TenantSpec(devices=["akida"])})
    assert "may not use gpu" in barred.verdicts[gpu].message
    many = ledger(*(Waiting(str(n), demand()) for n in range(6)))
    assert len(plan(many, sites, {"t": TenantSpec(quota=Quota(jobs=2))}).assignments) == 2
    limited = plan(many, sites, {"t": TenantSpec(quota=Quota(cpus="3"))})
    assert len(limited.assignments) == 3
    assert limited.verdicts[demand()].reason == "QuotaExceeded"
    assert plan(many, sites, {"t": TenantSpec(suspended=True)}).assignments == []


def test_a_job_that_asks_for_no_memory_counts_with_a_share_of_the_quota() -> None:
    sites = [site("a", cpus=32, memory=10 * 2**30)]
    many = [Waiting(str(n), demand()) for n in range(6)]
    for quota, expected in (
        (Quota(memory="512Mi"), 2),
        (Quota(memory="4Gi", cpus="4"), 4),
        (Quota(memory="4Gi", memory_per_cpu="2Gi"), 2),
        (Quota(cpus="5"), 5),
    ):
        tenants = {"t": TenantSpec(quota=quota)}
        assert len(plan(ledger(*many), sites, tenants).assignments) == expected
    tenants = {"t": TenantSpec(quota=Quota(memory="512Mi"))}
    busy = ledger(Occupying("8", demand(), "a"), Occupying("9", demand(), "a"), *many)
    made = plan(busy, sites, tenants)
    assert made.assignments == []
    assert "asks for no memory and counts with 256Mi" in made.verdicts[demand()].message
    busy.drop("8")
    assert len(plan(busy, sites, tenants).assignments) == 1
    assert Quota(memory="512Mi").default_memory(64_000) == 512 * 2**20, "never more than the quota: it could not start"
    assert Quota().default_memory(1000) == 0


def test_one_tenant_over_its_quota_does_not_hold_up_another() -> None:
    book = ledger(Waiting("1", demand(tenant="t")), Waiting("2", demand(tenant="u")))
    assert [a.uid for a in plan(book, [site()], {"t": TenantSpec(quota=Quota(jobs=0))}).assignments] == ["2"]


def test_a_site_with_a_queue_takes_more_than_it_has_room_for_but_only_after_free_ones() -> None:
    book = ledger(*(Waiting(str(n), demand(1)) for n in range(4)))
    sites = [site("hpc", cpus=1, queues=True), site("here", cpus=2)]
    chosen = [a.site for a in plan(book, sites, {}).assignments]
    assert sorted(chosen) == ["here", "here", "hpc", "hpc"]


def test_it_is_told_why_a_job_went_there_and_nowhere_else() -> None:
    hpc, cloud = site("hpc", cpus=4, queues=True), site("cloud", cpus=2, queues=True)
    busy = replace(hpc, others=Room(3500))
    far = SiteView("far", {}, Room(64000), closed="it is disabled")
    [gone] = plan(ledger(Waiting("1", demand(1))), [hpc, cloud], {}).assignments
    assert (gone.site, gone.why) == ("cloud", "2 of 2 CPUs free; hpc: 4 of 4 CPUs free")
    [gone] = plan(ledger(Waiting("1", demand(1))), [busy, cloud, far], {}).assignments
    taken = "500m of 4 CPUs free (3500m taken by work that is not ours)"
    assert (gone.site, gone.why) == ("cloud", f"2 of 2 CPUs free; hpc: {taken}; far: it is disabled")
    away = replace(far, closed="it is not ready (Unreachable); its administrators see why")
    [gone] = plan(ledger(Waiting("1", demand(1))), [cloud, away], {}).assignments
    told = read_reasons(gone.why or "")
    assert (told.headline, [name for name, _ in told.sites]) == ("2 of 2 CPUs free", ["far"])
    full = ledger(Occupying("0", demand(2), "cloud"), Waiting("1", demand(1)))
    [gone] = plan(full, [busy, cloud], {}).assignments
    assert gone.site == "hpc"
    assert gone.why == (
        f"no site has room now; it waits in the queue that is least full, {taken}; cloud: 0 of 2 CPUs free"
    )
    alone = Demand("t", Room(1000), sites=("hpc",))
    assert plan(ledger(Waiting("1", alone)), [hpc, cloud], {}).assignments[0].why is None


def test_what_one_machine_cannot_hold_and_what_has_no_image_goes_elsewhere() -> None:
    pair = replace(site("pair", cpus=4, memory=1000, queues=True), machine=Room(2000, 500))
    bare = replace(site("bare", cpus=8, queues=True), default_image=False)
    large = demand(3, 600)
    verdict = plan(ledger(Waiting("1", large)), [pair, bare], {}).verdicts[large]
    assert "pair: its largest node has 2 CPUs, the job asks for 3, and its largest node has 500" in verdict.message
    assert "bare: it has no default image, and the job names none" in verdict.message
    spread = demand_of("t", JobSpec.model_validate({"command": ["x"], "slurm": {"nodes": "1-2"}}))
    assert spread.nodes == 2
    [gone] = plan(
        ledger(Waiting("1", replace(spread, room=Room(3000), drivers=()))), [replace(pair, multi_node=True)], {}
    ).assignments
    assert gone.site == "pair"
    named = Demand("t", Room(1000), image=True)
    [gone] = plan(ledger(Waiting("1", named)), [pair, replace(bare, images=True)], {}).assignments
    assert gone.site == "bare"
    sent = demand_of("t", JobSpec.model_validate({"command": ["x"], "image": "oci-archive:x.tar"}))
    sites = [replace(bare, images=True), replace(pair, images=True)]
    message = plan(ledger(Waiting("1", sent)), sites, {}).verdicts[sent].message
    assert "bare: it runs images of registries only" in message
    [gone] = plan(ledger(Waiting("1", sent)), [sites[0], replace(sites[1], image_files=True)], {}).assignments
    assert gone.site == "pair"


demands = st.builds(
    lambda cpus, memory, gpu: demand(cpus, memory, **({"gpu": gpu} if gpu else {})),
    st.sampled_from([0.5, 1, 2, 4]),
    st.sampled_from([0, 100, 600]),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(demands, st.integers(-2, 2), st.sampled_from(["", "a", "b"])), max_size=30))
def test_no_room_is_given_twice_and_higher_priority_goes_first(jobs: list[tuple[Demand, int, str]]) -> None:
    sites = [site("a", cpus=4, gpu=2), site("b", cpus=2)]
    book = Ledger()
    waiting = {}
    for number, (wanted, priority, at) in enumerate(jobs):
        uid = f"{number:03}"
        fits = at and not {s.name: s for s in sites}[at].capacity.plus(book.taken(at), -1).lacks(wanted.room)
        if fits:
            book.put(Occupying(uid, wanted, at))
        else:
            waiting[uid] = Waiting(uid, wanted, priority)
            book.put(waiting[uid])
    made = plan(book, sites, {})
    for where in sites:
        taken = book.taken(where.name)
        for assignment in made.assignments:
            if assignment.site == where.name:
                taken = taken.plus(waiting[assignment.uid].demand.room)
        assert not where.capacity.lacks(taken)
    placed = {a.uid for a in made.assignments}
    assert len(placed) == len(made.assignments)
    for uid, entry in waiting.items():
        if uid not in placed:
            behind = [w for w in waiting.values() if w.demand == entry.demand and w.order > entry.order]
            assert not any(w.uid in placed for w in behind)
    assert made == plan(book, sites, {})


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), demands, st.sampled_from(["wait", "a", "b", "drop"])), max_size=60)
)
def test_the_ledger_is_the_sum_of_its_entries(steps: list[tuple[str, Demand, str]]) -> None:
    book, truth = Ledger(), {}
    for uid, wanted, what in steps:
        if what == "drop":
            assert book.drop(uid) is (truth.pop(uid, None) is not None)
        else:
            entry = Waiting(uid, wanted) if what == "wait" else Occupying(uid, wanted, what)
            assert book.put(entry) is (truth.get(uid) != entry)
            truth[uid] = entry
    for name in "ab":
        taken = Room()
        for entry in truth.values():
            if isinstance(entry, Occupying) and entry.site == name:
                taken = taken.plus(entry.demand.room)
        assert not taken.lacks(book.taken(name))
        assert not book.taken(name).lacks(taken)
        assert book.jobs_at(name) == sum(isinstance(e, Occupying) and e.site == name for e in truth.values())
    assert book.waiting == sum(isinstance(e, Waiting) for e in truth.values())
    assert book.active("t") == sum(isinstance(e, Occupying) for e in truth.values())
