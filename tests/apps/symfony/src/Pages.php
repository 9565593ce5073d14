<?php
declare(strict_types=1);

namespace Notes;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\Form\Extension\Core\Type\FileType;
use Symfony\Component\Form\Extension\Core\Type\SubmitType;
use Symfony\Component\Form\Extension\Core\Type\TextareaType;
use Symfony\Component\Form\Extension\Core\Type\TextType;
use Symfony\Component\Form\FormInterface;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\Security\Http\Authentication\AuthenticationUtils;
use Symfony\Component\Validator\Constraints\Image;
use Symfony\Component\Validator\Constraints\Length;
use Symfony\Component\Validator\Constraints\NotBlank;

/** What people see. */
final class Pages extends AbstractController
{
    public function __construct(private readonly Store $store)
    {
    }

    public function list(Request $request): Response
    {
        $query = (string) $request->query->get('q', '');
        return $this->render('list.html.twig', ['notes' => $this->store->find($query), 'query' => $query]);
    }

    public function login(AuthenticationUtils $tools): Response
    {
        return $this->render('login.html.twig', ['error' => $tools->getLastAuthenticationError(), 'name' => $tools->getLastUsername()]);
    }

    public function note(int $id): Response
    {
        return $this->render('note.html.twig', ['note' => $this->find($id)]);
    }

    public function new(Request $request): Response
    {
        $form = $this->form([], true)->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $data = $form->getData();
            $picture = $form['picture']->getData();
            $id = $this->store->add($data['title'], $data['text'], $picture ? $this->store->keep($picture) : null);
            $this->addFlash('notice', 'The note is kept.');
            return $this->redirectToRoute('note', ['id' => $id], Response::HTTP_SEE_OTHER);
        }
        return $this->renderForm('form.html.twig', ['form' => $form, 'title' => 'A new note']);
    }

    public function edit(int $id, Request $request): Response
    {
        $form = $this->form($this->find($id), false)->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $this->store->change($id, $form->getData()['title'], $form->getData()['text']);
            $this->addFlash('notice', 'The note is changed.');
            return $this->redirectToRoute('note', ['id' => $id], Response::HTTP_SEE_OTHER);
        }
        return $this->renderForm('form.html.twig', ['form' => $form, 'title' => "Note $id"]);
    }

    public function delete(int $id, Request $request): Response
    {
        $this->find($id);
        if (!$this->isCsrfTokenValid("delete-$id", (string) $request->request->get('token'))) {
            throw $this->createAccessDeniedException('stale form');
        }
        $this->store->remove($id);
        $this->addFlash('notice', 'The note is gone.');
        return $this->redirectToRoute('list', [], Response::HTTP_SEE_OTHER);
    }

    /** Conditional requests and ranges are answered by the framework. */
    public function picture(string $size, string $name, Request $request): Response
    {
        $file = $this->store->picture($size, $name);
        if (!is_file($file)) {
            throw $this->createNotFoundException();
        }
        $response = new BinaryFileResponse($file, 200, ['Content-Type' => 'image/jpeg'], true, null, true);
        $response->isNotModified($request);
        return $response;
    }

    public function inParts(): Response
    {
        return new StreamedResponse(static function (): void {
            for ($part = 1; $part <= 3; $part++) {
                echo "part $part\n";
                @ob_flush();
                flush();
                usleep(150_000);
            }
        }, 200, ['Content-Type' => 'text/plain', 'X-Accel-Buffering' => 'no']);
    }

    public function broken(): Response
    {
        throw new \LogicException('broken on purpose');
    }

    public function seen(): Response
    {
        return new JsonResponse($this->store->seen());
    }

    private function find(int $id): array
    {
        return $this->store->note($id) ?? throw $this->createNotFoundException("no note $id");
    }

    private function form(array $note, bool $withPicture): FormInterface
    {
        $data = array_intersect_key($note, ['title' => 1, 'text' => 1]);
        $builder = $this->createFormBuilder($data)
            ->add('title', TextType::class, ['constraints' => [new NotBlank(), new Length(['max' => 80])]])
            ->add('text', TextareaType::class, ['constraints' => [new NotBlank()]]);
        if ($withPicture) {
            $builder->add('picture', FileType::class, ['required' => false, 'mapped' => false, 'constraints' => [new Image(['maxSize' => '4M', 'mimeTypes' => ['image/jpeg']])]]);
        }
        return $builder->add('save', SubmitType::class)->getForm();
    }
}
