from pytest_ftgate import load

load("/items?page=2", connections=64)
load("/items", body='{"name": "x"}', headers={"Content-Type": "application/json"})
load(["/", "/about"])
load({"/items": 3, "/items/7": 1})
load("/items", rate=500, connections=20)
