"""Files for clusters are YAML with what their kinds need, and the names in them refer to something.

The rules are those of the published schemas, for the fields that the files have."""

import pages
import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is in requirements-dev.txt")
FOLDER = pages.ROOT / "examples" / "clusters"


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def check_job(spec: dict, master: str) -> None:
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] == spec["completions"] == 2
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never", (
        "the others are Always, which a Job can't have, and OnFailure"
    )
    assert pod["terminationGracePeriodSeconds"] >= 30
    (container,) = pod["containers"]
    assert container["name"] and container["image"] and container["resources"]["limits"]
    script = container["command"][-1]
    assert container["command"][:2] == ["sh", "-c"] and "\n" not in script.strip()
    for part in ("--nnodes=2", "$JOB_COMPLETION_INDEX", f"--master-addr={master} "):
        assert part in script
    (secret,) = [
        each["valueFrom"] for each in container["env"] if each["name"] == "DELTAWIRE_TOKEN"
    ]
    assert secret == {"secretKeyRef": {"name": "deltawire", "key": "token"}}
    assert all(isinstance(each.get("value", ""), str) for each in container["env"])


def test_an_indexed_job():
    service, policy, job = documents("kubernetes.yaml")
    kinds = [f"{each['apiVersion']} {each['kind']}" for each in (service, policy, job)]
    assert kinds == ["v1 Service", "networking.k8s.io/v1 NetworkPolicy", "batch/v1 Job"]
    template = job["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (source,) = policy["spec"]["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"] == labels and policy["spec"]["policyTypes"] == [
        "Ingress"
    ]
    # A pod of an indexed Job is called by the Job and its index, within the subdomain.
    name = service["metadata"]["name"]
    assert template["spec"]["subdomain"] == name
    check_job(job["spec"], f"{job['metadata']['name']}-0.{name}")


def test_a_jobset():
    (jobset,) = documents("jobset.yaml")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobset["spec"]["network"] == {
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
    }
    (ranks,) = jobset["spec"]["replicatedJobs"]
    name = jobset["metadata"]["name"]
    check_job(ranks["template"]["spec"], f"{name}-{ranks['name']}-0-0.{name}")


def test_compose():
    (compose,) = documents("compose.yaml")
    services = compose["services"]
    first = next(iter(services))
    for number, (name, service) in enumerate(services.items()):
        environment = service["environment"]
        assert environment["RANK"] == str(number) and environment["MASTER_ADDR"] == first, name
        assert environment["WORLD_SIZE"] == str(len(services))
        assert environment["DELTAWIRE_TOKEN"].startswith("${DELTAWIRE_TOKEN:?")
        assert set(service["networks"]) <= set(compose["networks"])
        assert "ports" not in service and service["image"]
        assert service["init"] is True, "process 1 ends by no signal that it doesn't handle"
